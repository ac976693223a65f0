"""What ``rollout.env_path`` names: this file's path is :data:`gem_rl2.ENV_PATH`."""

from __future__ import annotations

from gem_rl2._compat import contract

if contract() == "repository":
    from gem_rl2.repository import generate as generate
else:
    from gem_rl2.release import reset as reset
    from gem_rl2.release import step as step
