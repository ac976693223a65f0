"""The program that the tests kill: ``python killed_evaluation.py URL FOLDER EPISODES``."""

from __future__ import annotations

import sys

from gem_core.evaluation import OpenAIPolicy, evaluate

if __name__ == "__main__":
    url, folder, episodes = sys.argv[1:]
    policy = OpenAIPolicy("expert", base_url=url, timeout_s=1.0, max_wait_s=0.2, max_tries=20)
    result = evaluate("game:GuessTheNumber-v0", policy, episodes=int(episodes), concurrency=64, log=folder)
    print(result.episodes, result.requests)
