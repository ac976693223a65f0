"""``python -m gem_core.tiny OUT_DIR``: writes the tiny model as a folder that any framework loads."""

from __future__ import annotations

import argparse
import json
import sys

from gem_core.registration import make, spec
from gem_core.tiny.model import DEFAULT_ENVS, build_tiny, save_tiny
from gem_core.tiny.warm_start import warm_start


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m gem_core.tiny", description=__doc__)
    parser.add_argument("out_dir")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--env_id", nargs="+", default=list(DEFAULT_ENVS), help="whose texts the tokenizer knows")
    parser.add_argument("--env_kwargs", type=json.loads, default=None, help="JSON, for the warm start's environment")
    parser.add_argument("--warm_start", action="store_true", help="train on scripted episodes of the first environment")
    parser.add_argument("--hidden_size", type=int, default=64)
    parser.add_argument("--num_layers", type=int, default=2)
    args = parser.parse_args(argv)
    model, tokenizer = build_tiny(
        args.seed,
        [spec(e).id for e in args.env_id],
        hidden_size=args.hidden_size,
        num_layers=args.num_layers,
    )
    if args.warm_start:
        losses = warm_start(model, tokenizer, make(args.env_id[0], **(args.env_kwargs or {})), seed=args.seed)
        sys.stdout.write(f"warm start: loss {losses[0]:.2f} to {losses[-1]:.2f} in {len(losses)} updates\n")
    save_tiny(model, tokenizer, args.out_dir)
    size = sum(p.numel() for p in model.parameters())
    sys.stdout.write(f"{args.out_dir}: {size:,} parameters, {len(tokenizer)} tokens\n")


if __name__ == "__main__":
    main()
