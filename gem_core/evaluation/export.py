"""Episodes as rows for other programs: whole episodes, chat messages, token sequences."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gem_core.episode import Episode
from gem_core.evaluation.records import iter_episodes

Row = dict[str, Any]


def episode_rows(episode: Episode, system_prompt: str | None = None) -> list[Row]:
    """The episode, as :meth:`Episode.to_dict` writes it."""
    return [episode.to_dict()]


def chat_rows(episode: Episode, system_prompt: str | None = None) -> list[Row]:
    """``messages`` as supervised trainers (TRL's ``SFTTrainer``, say) read them.

    One row an episode; one a turn where each observation was a whole prompt of its own.
    """
    system = [{"role": "system", "content": system_prompt}] if system_prompt else []
    about = {
        "env_id": episode.env_id,
        "episode_id": episode.episode_id,
        "seed": episode.seed,
        "return": episode.total_reward,
        "success": episode.success,
    }
    pairs = [
        [{"role": "user", "content": t.observation}, {"role": "assistant", "content": t.action}] for t in episode.turns
    ]
    if len(episode.turns) > 1 and all(t.new_sequence and t.context_ids for t in episode.turns):
        return [{"messages": [*system, *pair], **about} for pair in pairs]
    return [{"messages": [*system, *(m for pair in pairs for m in pair)], **about}] if pairs else []


def sequence_rows(episode: Episode, system_prompt: str | None = None) -> list[Row]:
    """The episode's :class:`~gem_core.episode.TokenSequence` s; ValueError where it was played by text only."""
    return [{**asdict(s), "stop_reason": s.stop_reason.value, "env_id": episode.env_id} for s in episode.to_sequences()]


FORMATS: dict[str, Callable[[Episode, str | None], list[Row]]] = {
    "episodes": episode_rows,
    "sft": chat_rows,
    "sequences": sequence_rows,
}


def write_rows(episodes: Path, out: Path, form: str, kept: Collection[str], *, system_prompt: str | None = None) -> int:
    """Writes the kept episodes of ``episodes`` to ``out`` (``.jsonl`` or ``.parquet``).

    Returns:
        The number of rows.

    Raises:
        ImportError: a Parquet file without pyarrow.
        ValueError: a form that is not in :data:`FORMATS`, or token sequences of episodes that have none.
    """
    if form not in FORMATS:
        raise ValueError(f"form must be one of {', '.join(FORMATS)}, got {form!r}")
    out.parent.mkdir(parents=True, exist_ok=True)
    new = out.with_name(out.name + ".tmp")
    chosen = (e for e in iter_episodes(episodes) if e.episode_id in kept)
    rows = (row for e in chosen for row in FORMATS[form](e, system_prompt))
    count = _write_parquet(new, rows) if out.suffix == ".parquet" else _write_jsonl(new, rows)
    new.replace(out)
    return count


def _write_jsonl(path: Path, rows: Iterator[Row]) -> int:
    count = 0
    with path.open("w", encoding="utf-8", errors="replace", newline="\n") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    return count


def _write_parquet(path: Path, rows: Iterator[Row]) -> int:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as e:
        raise ImportError("a .parquet file needs the package 'pyarrow': pip install pyarrow", name=e.name) from e
    table = pyarrow.Table.from_pylist([_flat(row) for row in rows])
    pyarrow.parquet.write_table(table, path)
    return int(table.num_rows)


def _flat(row: Row) -> Row:
    """What differs in shape from row to row becomes JSON text: a column has one type."""
    out: Row = {k: json.dumps(v, ensure_ascii=False) if isinstance(v, dict) else v for k, v in row.items()}
    if isinstance(out.get("turns"), list):
        out["turns"] = [{**t, "info": json.dumps(t["info"], ensure_ascii=False)} for t in out["turns"]]
    return out
