"""``python -m gem_openrlhf.dataset OUT.jsonl --env ID ...``: writes a prompt dataset for any mix of environments.

OpenRLHF takes it as ``--data.prompt_dataset OUT.jsonl --data.input_key input --data.label_key label`` (and a held-out
one as ``--eval.dataset``). A row is one group: its ``rollout.n_samples_per_prompt`` episodes start from the row's seed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from gem_core.core import check_seed
from gem_openrlhf.settings import VALIDATION_SEED, GemSettings


@dataclass(frozen=True)
class EnvChoice:
    """One environment of a mix."""

    env_id: str
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    #: Share of the rows, relative to the others'.
    weight: float = 1.0

    @classmethod
    def parse(cls, text: str) -> EnvChoice:
        """An id, or a JSON object ``{"env_id": ..., "env_kwargs": {...}, "weight": 1}``."""
        if not text.lstrip().startswith("{"):
            return cls(text)
        data = json.loads(text)
        known = sorted(f.name for f in fields(cls))
        if "env_id" not in data or set(data) - set(known):
            raise ValueError(f"an environment of the mix is an id or a JSON object with the keys {known}, got {text}")
        return cls(**data)


def rows(
    envs: Sequence[EnvChoice], size: int, *, seed: int = 0, settings: Mapping[str, Any] | None = None
) -> Iterator[dict[str, str]]:
    """``size`` rows with seeds ``seed``, ``seed + 1``, ...; each draws its environment by weight.

    Args:
        envs: The mix.
        size: Number of rows.
        seed: Of the first row. Row ``i`` is the same whatever the size.
        settings: Further keys of :class:`gem_openrlhf.settings.GemSettings` for every label.

    Yields:
        ``input`` (a name for people; the environment writes the real prompt), ``label`` (JSON) and ``datasource`` (the
        env id, so that OpenRLHF's evaluation reports each environment apart).
    """
    if not envs:
        raise ValueError("name at least one environment")
    if size < 1:
        raise ValueError(f"size must be at least 1, got {size!r}")
    check_seed(seed)
    for choice in envs:
        if not choice.weight > 0:
            raise ValueError(f"the weight of {choice.env_id} must be positive, got {choice.weight!r}")
    for s in range(seed, seed + size):
        choice = random.Random(f"mix:{s}").choices(envs, [c.weight for c in envs])[0]
        label = {"env_id": choice.env_id, "env_kwargs": choice.env_kwargs, "seed": s, **(settings or {})}
        GemSettings(**label)  # refuses what an episode would refuse
        # OpenRLHF tells evaluation rows apart by their prompt: it must be unique.
        yield {"input": f"{choice.env_id}#{s}", "label": json.dumps(label), "datasource": choice.env_id}


def write(path: Path, data: Iterator[dict[str, str]]) -> int:
    """Writes JSON lines and returns how many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row, ensure_ascii=False) for row in data]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m gem_openrlhf.dataset", description=__doc__)
    parser.add_argument("out", type=Path, help="the JSON lines file to write")
    parser.add_argument(
        "--env",
        action="append",
        required=True,
        help="an id, or a JSON object with env_id, env_kwargs and weight; several --env make a mix",
    )
    parser.add_argument("--size", type=int, default=10_000, help="rows")
    parser.add_argument("--seed", type=int, default=0, help="row i starts from seed + i")
    parser.add_argument(
        "--held-out", action="store_true", help=f"seeds from {VALIDATION_SEED:,} on, for --eval.dataset"
    )
    parser.add_argument("--settings", type=json.loads, default={}, help='JSON for every row: {"max_turns": 8, ...}')
    args = parser.parse_args(argv)

    import gem_core as gem

    try:
        envs = [EnvChoice.parse(text) for text in args.env]
        for choice in envs:
            gem.make(
                choice.env_id, **choice.env_kwargs
            ).close()  # a misspelt id or argument is named here, not in a run
        first = args.seed + (VALIDATION_SEED if args.held_out else 0)
        count = write(args.out, rows(envs, args.size, seed=first, settings=args.settings))
    except (ValueError, TypeError) as e:
        parser.error(str(e))
    sys.stdout.write(f"{args.out}: {count} rows of {', '.join(c.env_id for c in envs)}\n")


if __name__ == "__main__":
    main()
