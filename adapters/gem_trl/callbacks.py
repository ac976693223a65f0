"""A progress bar that shows what matters in an episode."""

from __future__ import annotations

from typing import Any

from tqdm.auto import tqdm
from transformers import TrainerCallback


class ProgressBar(TrainerCallback):
    """One bar over the optimizer steps, with the last batch's success rate, return and turns.

    Use it with ``disable_tqdm=True``, so that the trainer does not draw its own.
    """

    def __init__(self) -> None:
        self._bar: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            self._bar = tqdm(total=state.max_steps, initial=state.global_step, unit="step", dynamic_ncols=True)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._bar is not None:
            self._bar.update(state.global_step - self._bar.n)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if self._bar is not None and logs and "return" in logs:
            shown = {k: f"{logs[k]:.2f}" for k in ("success", "return", "turns") if logs.get(k) is not None}
            self._bar.set_postfix(shown)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
