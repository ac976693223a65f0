"""Episodes that every adapter must carry unchanged: multi-turn, one turn, truncated, failed, rewritten history, rebuilt
contexts (several sequences), Unicode, negative rewards, turns cut by a token limit, turns without a token.

They are played through ``EpisodeSession`` from random token streams, most of which do not survive decode and encode.
"""

from __future__ import annotations

import random
from typing import Any

from support import DROPS_REASONING, QWEN_LIKE, ScriptEnv, build_tokenizer

from gem_core import Episode, EpisodeSession, Generation, Limits
from gem_core.chat import ChatRenderer

EOS = 2
OBSERVATIONS = ["go on", "höher ↑ 高い 🎲", "<b>&amp;</b>", "", "line\nline\n", "lower than 12."]


def episodes(n: int = 50, seed: int = 0, *, several_sequences: bool = True, group_size: int = 4) -> list[Episode]:
    """``n`` finished episodes, in groups of ``group_size``; the same for the same seed."""
    rng = random.Random(seed)
    tokenizers = {name: build_tokenizer(t) for name, t in (("append", QWEN_LIKE), ("rewrites", DROPS_REASONING))}
    renderers = {name: ChatRenderer(t) for name, t in tokenizers.items()}
    vocabulary = len(tokenizers["append"])
    out = []
    for i in range(n):
        kind = rng.choice(["append", "append", "rewrites", "rebuild"]) if several_sequences else "append"
        renderer = renderers["rewrites" if kind == "rewrites" else "append"]
        turns = 1 if i % 7 == 0 else rng.randint(1, 20)
        end = rng.choice(["terminated", "truncated", "max_turns", "error"]) if i % 3 == 0 else "terminated"
        steps: list[Any] = [
            (rng.choice(OBSERVATIONS), round(rng.uniform(-1, 1), 3), False, False, {"suffix": "Your move."})
            for _ in range(turns)
        ]
        if end == "error":
            steps[-1] = RuntimeError("the environment broke")
        elif end != "max_turns":
            last = (rng.choice(OBSERVATIONS), round(rng.uniform(-1, 1), 3))
            steps[-1] = (*last, end == "terminated", end == "truncated", {"success": rng.random() < 0.5})
        session = EpisodeSession(
            ScriptEnv(steps, first=rng.choice(OBSERVATIONS)),
            renderer,
            seed=i // group_size,
            limits=Limits(max_turns=turns),
            context="rebuild" if kind == "rebuild" else "append",
            episode_id=f"e{i}",
            group_id=f"g{i // group_size}",
            env_id="test:Script-v0",
        )
        prompt = session.start()
        while prompt is not None:
            ids = [rng.randrange(3, vocabulary) for _ in range(rng.randint(0 if i % 11 == 0 else 1, 12))]
            if kind == "rewrites" and rng.random() < 0.4:
                think = tokenizers["rewrites"].encode("<think>\nhm\n</think>\n\n", add_special_tokens=False)
                ids = [*think, *ids]
            finish = rng.choice(["stop", "stop", "length"])
            if finish == "stop":
                ids.append(EOS)
            prompt = session.submit(Generation(ids, [-rng.random() for _ in ids], finish))  # type: ignore[arg-type]
        out.append(session.episode)
    return out
