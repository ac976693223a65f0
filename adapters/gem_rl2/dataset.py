"""Prompt files for RL2: rows that say which environment an episode plays, and from which seed.

    python -m gem_rl2.dataset train.jsonl --env game:GuessTheNumber-v0 --rows 1024
    python -m gem_rl2.dataset train.jsonl --env game:Hangman-v0-easy=2 --env game:Wordle-v0-easy=1 --seed 7
    python -m gem_rl2.dataset test.jsonl --env game:GuessTheNumber-v0 --rows 64 --held-out

One row is one group: RL2 plays it ``responses_per_prompt`` times, each time from the row's seed.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gem_core.core import check_seed

#: Held-out seeds start here, far from any training seed.
HELD_OUT_SEED = 1_000_000_000


def rows(
    envs: Mapping[str, float] | Sequence[str] | str,
    count: int,
    *,
    kwargs: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    held_out: bool = False,
) -> list[dict[str, Any]]:
    """Rows for both of RL2's contracts: one column ``extra_info`` with ``env_id``, ``env_kwargs`` (JSON), ``seed`` and
    ``group``. There is no ``prompt`` column: rl-square 0.0.2 would not ask the environment for one then.

    Args:
        envs: An environment's id, several, or ids with their share of the rows.
        count: Number of rows.
        kwargs: Arguments of each environment, by id.
        seed: Row ``i`` starts from ``seed + i``; held-out rows from ``seed + 1,000,000,000 + i``.
        held_out: For a test file.

    Raises:
        ValueError: no environment, an id that is not registered, a share that is not positive, a bad count or seed.
    """
    import gem_core as gem

    shares = (
        {envs: 1.0} if isinstance(envs, str) else dict(envs) if isinstance(envs, Mapping) else dict.fromkeys(envs, 1.0)
    )
    if not shares:
        raise ValueError("give at least one environment")
    if count < 1:
        raise ValueError(f"count must be positive, got {count!r}")
    for env_id, share in shares.items():
        if not share > 0:
            raise ValueError(f"the share of {env_id} must be positive, got {share!r}")
        gem.spec(env_id)
    if unknown := sorted(set(kwargs or {}) - set(shares)):
        raise ValueError(f"kwargs for {unknown}, which are not among the environments {sorted(shares)}")
    first = check_seed(seed) + (HELD_OUT_SEED if held_out else 0)
    out = []
    for row_seed in range(first, first + count):
        # Drawn from the row's seed: the same in every process, whatever the number of rows.
        env_id = random.Random(f"mix:{row_seed}").choices(list(shares), list(shares.values()))[0]
        info = {
            "env_id": env_id,
            "env_kwargs": json.dumps(dict((kwargs or {}).get(env_id, {}))),
            "seed": row_seed,
            "group": f"{env_id}#{row_seed}",
        }
        out.append({"extra_info": info})
    return out


def write(path: str | Path, *args: Any, **named: Any) -> Path:
    """Writes :func:`rows` as JSON lines, for ``rollout.train.path`` (repository) or ``train_data.path`` (0.0.2)."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row) + "\n" for row in rows(*args, **named)]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, metavar="OUT.jsonl")
    parser.add_argument("--env", action="append", required=True, metavar="ID[=SHARE]")
    parser.add_argument("--kwargs", action="append", default=[], metavar="ID=JSON", help="arguments of an environment")
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--held-out", action="store_true", help="seeds that no training file has")
    args = parser.parse_args(argv)
    try:
        shares = {}
        for text in args.env:
            env_id, _, share = text.partition("=")
            shares[env_id] = float(share or 1)
        kwargs = {env_id: json.loads(value) for env_id, _, value in (text.partition("=") for text in args.kwargs)}
        write(args.path, shares, args.rows, kwargs=kwargs, seed=args.seed, held_out=args.held_out)
    except ValueError as e:
        parser.error(str(e))


if __name__ == "__main__":
    main()
