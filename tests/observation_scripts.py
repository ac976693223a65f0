"""An environment whose texts are given, and a chat template that is easy to read."""

from __future__ import annotations

from typing import Any

#: (observation, reward, terminated, truncated, info) of reset (reward unused) and of each step.
SCRIPTS: dict[str, list[tuple[str, float, bool, bool, dict[str, Any]]]] = {
    "plain": [
        ("Find the door.", 0.0, False, False, {}),
        ("A corridor.\n", 0.0, False, False, {}),
        ("", 0.25, False, False, {}),
        ("The door.", 1.0, True, False, {}),
    ],
    "suffix": [
        ("Rules of the game.", 0.0, False, False, {"suffix": "Move 1?"}),
        ("Moved left.", 0.5, False, False, {"suffix": "Board:\n x.\nMove 2?\n"}),
        ("Moved up.\n", 0.0, False, False, {"suffix": "Move 3?"}),
        ("Over.", 0.5, True, False, {}),
    ],
    "prefix": [
        ("Start.", 0.0, False, False, {"prefix": "[day 1] ", "suffix": " [end]"}),
        ("Middle.", 0.0, False, False, {"prefix": "[day 2] "}),
        ("Still there.", 0.0, False, True, {"prefix": "[day 3] "}),
    ],
    "tool": [
        ("What is 2+2?", 0.0, False, False, {"use_tool": False}),
        ("4", 0.05, False, False, {"use_tool": True, "parsed_action": "<python>2+2</python>"}),
        ("Right.", 1.0, True, False, {"use_tool": False}),
    ],
}
ACTIONS = ["look around", "go on\n", "", "open it"]


class Template:
    """A tokenizer as far as templates go."""

    def apply_chat_template(
        self, conversation: list[dict[str, str]], tokenize: bool = False, add_generation_prompt: bool = True
    ) -> str:
        assert not tokenize
        assert add_generation_prompt
        return "".join(f"<{m['role']}>{m['content']}</{m['role']}>\n" for m in conversation) + "<assistant>"


def scripted_env(base: type, script: str) -> Any:
    """An instance of a subclass of ``base``, the ``Env`` class of either library, that plays a script."""

    class Scripted(base):  # type: ignore[misc]
        def __init__(self, name: str) -> None:
            self.script = SCRIPTS[name]
            self.t = 0

        def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
            self.t = 0
            return self.script[0][0], dict(self.script[0][4])

        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            self.t += 1
            observation, reward, terminated, truncated, info = self.script[self.t]
            return observation, reward, terminated, truncated, dict(info)

        def get_state(self) -> dict[str, Any]:
            return {"t": self.t}

        def set_state(self, state: dict[str, Any]) -> None:
            self.t = state["t"]

    return Scripted(script)


def play(env: Any, turns: int) -> list[str]:
    """The observations of reset and of ``turns`` steps."""
    observations = [env.reset(seed=0)[0]]
    for action in ACTIONS[:turns]:
        observations.append(env.step(action)[0])
    return observations


#: Settings of the comparison with GEM 0.1.
SETTINGS: dict[str, dict[str, Any]] = {
    "concat": {"include_action": False, "include_chat_template": False},
    "concat_window_1": {"include_action": False, "include_chat_template": False, "max_history_length": 1},
    "concat_with_action": {"include_action": True, "include_chat_template": False},
    "concat_with_action_window_2": {"include_action": True, "include_chat_template": False, "max_history_length": 2},
    "concat_chat": {"include_action": True, "include_chat_template": True},
    "concat_chat_window_1": {"include_action": True, "include_chat_template": True, "max_history_length": 1},
    "concat_chat_on_reset": {
        "include_action": True,
        "include_chat_template": False,
        "apply_chat_template_on_reset": True,
    },
}
