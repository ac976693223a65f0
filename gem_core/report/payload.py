"""What the page embeds: plain JSON values, computed here so that the page only draws."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gem_core.report.curves import Point, group_curves, series_of
from gem_core.report.runs import Run

#: Configuration keys in which runs of one group may differ.
NOT_THE_CONFIGURATION = frozenset(
    {"seed", "output_dir", "logging_dir", "run_name", "resume", "threads", "overwrite_output_dir", "hub_model_id"}
)
MAX_TEXT = 20_000
MAX_CONTEXT_IDS = 2_000
MAX_INFO_TEXT = 2_000
MAX_NAME = 200


def build_payload(runs: Sequence[Run], *, title: str | None = None, max_text: int = MAX_TEXT) -> dict[str, Any]:
    """Everything the page shows, JSON-able, without NaN and infinities (they become null).

    Args:
        runs: At least one. Those whose configurations differ only in the seed form a group: one curve.
        title: Heading; the environments' ids if None.
        max_text: Longer texts are cut in the middle; ``cut`` then says how many characters are missing.

    Raises:
        ValueError: no runs.
    """
    if not runs:
        raise ValueError("a report needs at least one run")
    _distinct_names(runs)
    flat = [flatten(r.config) for r in runs]
    groups = _groups(runs, flat)
    episodes = [_episode(row, i, run, max_text) for i, run in enumerate(runs) for row in run.episodes]
    vocabularies = [_take_vocabulary([e for e in episodes if e["run"] == i]) for i in range(len(runs))]
    envs = sorted({e["env"] for e in episodes}) or sorted({f["env_id"] for f in flat if f.get("env_id")})
    heading = title or (", ".join(envs[:3]) + (f" and {len(envs) - 3} more" if len(envs) > 3 else "")) or runs[0].name
    return {
        "title": heading,
        "runs": [
            {
                "name": run.name,
                "group": next(g for g, group in enumerate(groups) if i in group["runs"]),
                "seed": flat[i].get("seed"),
                "gamma": _gamma(run),
                "config": flat[i],
                "notes": run.notes,
                "recorded": run.recorded_episodes,
                "wall_s": max((w for r in run.metrics if (w := number(r.get("wall_s"))) is not None), default=None),
                "vocabulary": vocabularies[i],
            }
            for i, run in enumerate(runs)
        ],
        "groups": groups,
        "curves": [
            {"group": g, **curve}
            for g, group in enumerate(groups)
            for curve in group_curves([series_of(_points(runs[i])) for i in group["runs"]])
        ],
        "envs": _env_results(episodes, groups),
        "episodes": episodes,
    }


def number(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer beyond the floats
        return None


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings by their dotted names, values as short texts."""
    out: dict[str, str] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            out.update(flatten(value, f"{name}."))
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            out[cut(name, MAX_NAME)[0]] = cut(text, MAX_INFO_TEXT)[0]
    return out


def cut(text: str, most: int) -> tuple[str, int]:
    """The text without its middle where it is longer than ``most``, and how many characters are missing."""
    if len(text) <= most:
        return text, 0
    head, tail = most * 3 // 4, most - most * 3 // 4
    return f"{text[:head]}\n[… {len(text) - most:,} characters left out …]\n{text[-tail:]}", len(text) - most


# -- runs ---------------------------------------------------------------------------------------------------------


def _distinct_names(runs: Sequence[Run]) -> None:
    counts = Counter(r.name for r in runs)
    for run in runs:
        if counts[run.name] > 1:
            run.name = os.path.join(run.path.resolve().parent.name, run.path.resolve().name)
    seen: Counter[str] = Counter()
    for run in runs:
        seen[run.name] += 1
        if seen[run.name] > 1:
            run.name += f" ({seen[run.name]})"


def _groups(runs: Sequence[Run], flat: Sequence[dict[str, str]]) -> list[dict[str, Any]]:
    """Runs of one configuration together; labelled by the settings that tell the groups apart."""
    settings = [{k: v for k, v in f.items() if k not in NOT_THE_CONFIGURATION} for f in flat]
    groups: list[dict[str, Any]] = []
    for i, setting in enumerate(settings):
        known = next((g for g in groups if setting and settings[g["runs"][0]] == setting), None)
        if known is None:
            groups.append({"runs": [i]})
        else:
            known["runs"].append(i)
    firsts = [settings[g["runs"][0]] for g in groups]
    keys = list(dict.fromkeys(k for s in firsts for k in s))
    differing = [k for k in keys if len({s.get(k) for s in firsts}) > 1]
    for group, setting in zip(groups, firsts, strict=True):
        names = [runs[i].name for i in group["runs"]]
        parts = [f"{k.rpartition('.')[2]}={cut(setting[k], 40)[0]}" for k in differing[:3] if k in setting]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        group["label"] = ", ".join(parts or names[:3]) + ("" if parts else more)
        group["differing"] = differing
        seeds = Counter(flat[i].get("seed") for i in group["runs"])
        for seed, times in seeds.items():
            if times > 1:
                runs[group["runs"][0]].notes.append(
                    f"{times} runs of this configuration have the same seed ({seed}): the band is not one over seeds"
                )
    labels = Counter(g["label"] for g in groups)
    for group in groups:
        if labels[group["label"]] > 1:
            group["label"] = f"{group['label']} ({runs[group['runs'][0]].name})"
    return groups


def _points(run: Run) -> list[Point]:
    """The metrics by split and environment. ``eval/NAME`` in a training line is an evaluation's number."""
    points: list[Point] = []
    skipped = 0
    for row in run.metrics:
        step = number(row.get("step"))
        if step is None:
            skipped += 1
            continue
        wall, split, env = number(row.get("wall_s")), str(row.get("split", "train")), str(row.get("env_id") or "")
        found: dict[str, dict[str, float | None]] = {}
        for key, value in row.items():
            is_number = value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))
            if key in ("step", "split", "wall_s", "env_id") or not is_number:
                continue
            own, name = ("eval", key[5:]) if key.startswith("eval/") else (split, key)
            found.setdefault(own, {})[name] = number(value)
        points += [Point(step, wall, own, env, values) for own, values in found.items()]
    if skipped:
        run.notes.append(f"metrics.jsonl: {skipped} lines left out, they have no step")
    return points


# -- episodes -----------------------------------------------------------------------------------------------------


def _episode(row: Mapping[str, Any], run_index: int, run: Run, max_text: int) -> dict[str, Any]:
    """One episode with short names and without what is empty."""
    data = row["episode"]
    turns = [t for t in _list(data.get("turns")) if isinstance(t, dict)]
    rewards = [number(t.get("reward")) for t in turns]
    advantages, tokens = _list(row.get("advantages")), _list(row.get("tokens"))
    out: dict[str, Any] = {
        "run": run_index,
        "step": number(row.get("step")),
        "split": str(row.get("split") or "train"),
        "env": cut(str(data.get("env_id") or "(unnamed)"), MAX_NAME)[0],
        "id": cut(str(data.get("episode_id") or ""), MAX_NAME)[0],
        "seed": data.get("seed") if isinstance(data.get("seed"), (int, str)) else None,
        "stop": str(data.get("stop_reason") or "unfinished"),
        "success": data.get("success") if isinstance(data.get("success"), bool) else None,
        "return": None if None in rewards else math.fsum(r for r in rewards if r is not None),
        "turns": [],
    }
    texts = (("group_id", "group", MAX_NAME), ("error", "error", max_text), ("final_observation", "final", max_text))
    for key, name, most in texts:
        if data.get(key):
            out[name] = cut(str(data[key]), most)[0]
    if data.get("metadata"):
        out["metadata"] = _pairs(data["metadata"])
    to_go = returns(rewards, _gamma(run))
    for i, turn in enumerate(turns):
        observation, missing = cut(str(turn.get("observation", "")), max_text)
        action, missing_too = cut(str(turn.get("action", "")), max_text)
        context, ids, logprobs = (_list(turn.get(k)) for k in ("context_ids", "response_ids", "logprobs"))
        spelled = _list(tokens[i]) if i < len(tokens) else []
        shown = {
            "obs": observation,
            "act": action,
            "cut": missing + missing_too,
            "r": rewards[i],
            "g": to_go[i],
            "a": number(advantages[i]) if i < len(advantages) else None,
            "ctx": context[:MAX_CONTEXT_IDS],
            "ctx_n": len(context),
            "ids": ids,
            "lp": [None if (v := number(x)) is None else float(f"{v:.4g}") for x in logprobs],
            "tok": [cut(str(t), MAX_INFO_TEXT)[0] for t in spelled] if len(spelled) == len(ids) else [],
            "new": bool(turn.get("new_sequence", True)),
            "finish": "" if turn.get("finish_reason", "stop") == "stop" else str(turn["finish_reason"]),
            "info": _pairs(turn.get("info")),
        }
        out["turns"].append({k: v for k, v in shown.items() if k == "r" or v not in ("", [], None, 0, False)})
    return out


def _gamma(run: Run) -> float:
    """The run's discount a turn; 1.0 where the configuration has none."""
    gamma = number(run.config.get("gamma"))
    return gamma if gamma is not None and 0.0 <= gamma <= 1.0 else 1.0


def returns(rewards: Sequence[float | None], gamma: float) -> list[float | None]:
    """Discounted return from each turn on; None from the last turn whose reward is no number back to the first."""
    out: list[float | None] = []
    after: float | None = 0.0
    for reward in reversed(rewards):
        after = None if reward is None or after is None else reward + gamma * after
        out.append(after)
    return out[::-1]


def _take_vocabulary(episodes: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Moves token texts out of the turns: each id's text once a run. A turn that disagrees keeps its own."""
    vocabulary: dict[str, str] = {}
    for episode in episodes:
        for turn in episode["turns"]:
            texts = turn.get("tok")
            if texts and all(vocabulary.setdefault(str(i), t) == t for i, t in zip(turn["ids"], texts, strict=True)):
                del turn["tok"]
    return vocabulary


def _env_results(episodes: Sequence[dict[str, Any]], groups: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results of the recorded episodes by group, environment and split, in the first and last quarter of steps."""
    cells: dict[tuple[int, str, str], list[dict[str, Any]]] = {}
    group_of = {i: g for g, group in enumerate(groups) for i in group["runs"]}
    for e in episodes:
        cells.setdefault((group_of[e["run"]], e["env"], e["split"]), []).append(e)
    out = []
    for (group, env, split), members in sorted(cells.items(), key=lambda c: (c[0][1], c[0][2], c[0][0])):
        steps = sorted({e["step"] for e in members if e["step"] is not None})
        quarter = -(-len(steps) // 4)
        early = [e for e in members if e["step"] in steps[:quarter]] if steps else members
        late = [e for e in members if e["step"] in steps[-quarter:]] if steps else members
        stops = Counter(e["stop"] for e in late).most_common()
        out.append(
            {
                "group": group,
                "env": env,
                "split": split,
                "episodes": len(members),
                "steps": len(steps),
                "first": _quarter(early),
                "last": _quarter(late),
                "stops": [[reason, n] for reason, n in stops],
            }
        )
    return out


def _quarter(episodes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    judged = [e["success"] for e in episodes if e["success"] is not None]
    totals = [e["return"] for e in episodes if e["return"] is not None]
    return {
        "episodes": len(episodes),
        "success": sum(judged) / len(judged) if judged else None,
        "interval": wilson(sum(judged), len(judged)) if judged else None,
        "return": math.fsum(totals) / len(totals) if totals else None,
        "turns": sum(len(e["turns"]) for e in episodes) / len(episodes) if episodes else None,
    }


def wilson(successes: int, n: int, z: float = 1.959964) -> list[float]:
    """Wilson's 95 % interval of a share (E. B. Wilson, JASA 1927)."""
    p = successes / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return [max(0.0, centre - half), min(1.0, centre + half)]


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _pairs(info: Any) -> list[list[str]]:
    """A dict as short texts, in its order."""
    if not isinstance(info, Mapping):
        return []
    return [
        [
            cut(str(k), MAX_NAME)[0],
            cut(v if isinstance(v, str) else json.dumps(v, ensure_ascii=False, default=str), MAX_INFO_TEXT)[0],
        ]
        for k, v in info.items()
    ]
