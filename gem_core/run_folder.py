"""A training run on disk: what any trainer leaves behind and :mod:`gem_core.report` reads.

========================  ============================================================================================
``run.json``              the configuration, one JSON object
``metrics.jsonl``         one object a line: ``step``, ``split`` (``"train"`` or ``"eval"``), ``wall_s``, and numbers
                          such as those of :func:`gem_core.episode.summarize` (``success``, ``return``, ``turns``)
``episodes.jsonl``        one sampled episode a line: ``step``, ``split``, ``episode`` (:meth:`Episode.to_dict`),
                          ``advantages`` (one a turn, or null) and ``tokens`` (for each turn the text of each sampled
                          token, or null)
``tensorboard/``          the same metrics, where the package ``tensorboard`` is installed
========================  ============================================================================================
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from gem_core.episode import Episode

Split = Literal["train", "eval"]


class RunFolder:
    """Writes a run's folder; one process of a run does.

    Args:
        path: Created if it does not exist.
        config: JSON-able values for ``run.json``; others are written as their ``str``.
        resume: Go on with the files that are there. False: they are the record of an earlier run and are replaced.
        tensorboard: Write TensorBoard events too; None = if the package is installed.
        clock: Seconds; for ``wall_s``.

    Raises:
        ImportError: ``tensorboard=True`` and the package is missing.
    """

    def __init__(
        self,
        path: str | Path,
        config: Mapping[str, Any] | None = None,
        *,
        resume: bool = False,
        tensorboard: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self.metrics_path = self.path / "metrics.jsonl"
        self.episodes_path = self.path / "episodes.jsonl"
        self.config_path = self.path / "run.json"
        self._clock = clock
        self._started_at = clock()
        if resume:
            for path in (self.metrics_path, self.episodes_path):
                _drop_partial_line(path)
            rows = read_jsonl(self.metrics_path)
            if rows:  # wall_s goes on where the earlier part of the run ended
                self._started_at -= float(rows[-1].get("wall_s", 0.0))
        else:
            self.metrics_path.unlink(missing_ok=True)
            self.episodes_path.unlink(missing_ok=True)
            shutil.rmtree(self.path / "tensorboard", ignore_errors=True)
        if config is not None:
            self.config_path.write_text(
                json.dumps(_clean(dict(config)), indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
            )
        self._writer = _summary_writer(self.path / "tensorboard", tensorboard)

    def log_metrics(self, step: int, metrics: Mapping[str, Any], split: Split = "train") -> None:
        """Appends one line.

        Args:
            step: Optimizer updates made so far.
            metrics: Names to numbers (or short texts); NaN and infinities are written as null.
            split: ``"train"`` or ``"eval"`` (held-out episodes).
        """
        row = {"step": step, "split": split, "wall_s": round(self._clock() - self._started_at, 3), **metrics}
        _append(self.metrics_path, [row])
        if self._writer is not None:
            for name, value in metrics.items():
                if isinstance(value, (int, float)) and math.isfinite(value):
                    self._writer.add_scalar(f"{split}/{name}", value, step)
            self._writer.flush()

    def log_episodes(
        self,
        step: int,
        episodes: Sequence[Episode],
        advantages: Sequence[Sequence[float]] | None = None,
        split: Split = "train",
        tokens: Sequence[Sequence[Sequence[str]]] | None = None,
    ) -> None:
        """Appends one line an episode.

        Args:
            step: Optimizer updates made before the episodes were played.
            episodes: The episodes to keep; a sample of the batch is enough.
            advantages: For each episode one number a turn, shapes (turns_i,).
            split: ``"train"`` or ``"eval"``.
            tokens: For each episode, for each turn, the text of each sampled token; see :func:`token_texts`.

        Raises:
            ValueError: an episode and its advantages or tokens have different numbers of turns.
        """
        rows = []
        for i, episode in enumerate(episodes):
            adv = None if advantages is None else [float(a) for a in advantages[i]]
            texts = None if tokens is None else [list(t) for t in tokens[i]]
            for what, value in (("advantages", adv), ("tokens", texts)):
                if value is not None and len(value) != len(episode.turns):
                    raise ValueError(
                        f"episode {episode.episode_id!r} has {len(episode.turns)} turns, its {what} {len(value)}"
                    )
            rows.append(
                {"step": step, "split": split, "episode": episode.to_dict(), "advantages": adv, "tokens": texts}
            )
        _append(self.episodes_path, rows)

    def rewind(self, step: int) -> None:
        """Forgets what was written at or after ``step``, before a run goes on from its checkpoint of that step.

        Evaluations of that very step stay: they were made before the checkpoint was written.
        """
        for path in (self.metrics_path, self.episodes_path):
            rows = read_jsonl(path)
            kept = [r for r in rows if r["step"] < step or (r["step"] == step and r.get("split") == "eval")]
            if len(kept) < len(rows):
                new = path.with_suffix(".tmp")
                new.unlink(missing_ok=True)
                _append(new, kept)
                new.replace(path)

    def close(self) -> None:
        """Closes the TensorBoard file; safe to call twice."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def token_texts(episode: Episode, tokenizer: Any) -> list[list[str]]:
    """For each turn the text of each sampled token (bytes that are no character by themselves show as U+FFFD)."""
    return [[tokenizer.decode([t]) for t in turn.response_ids] for turn in episode.turns]


def read_jsonl(path: str | Path) -> list[dict[str, Any]]:
    """The objects of a JSONL file; none if it does not exist. A last line cut short by a crash is left out."""
    path = Path(path)
    if not path.exists():
        return []
    # Not splitlines(): JSON may hold U+2028 and its like unescaped.
    lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as e:
            if number < len(lines):
                raise ValueError(f"{path}, line {number}: not JSON: {e}") from e
    return rows


def _drop_partial_line(path: Path) -> None:
    """Cuts off a last line that a crash left unfinished; what is appended would become part of it."""
    if not path.exists():
        return
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        with path.open("r+b") as file:
            file.truncate(whole)


def _append(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    text = "".join(json.dumps(_clean(r), ensure_ascii=False, allow_nan=False) + "\n" for r in rows)
    with path.open("a", encoding="utf-8", newline="\n") as file:
        file.write(text)


def _clean(value: Any) -> Any:
    """JSON-able; NaN and infinities become null, lone surrogates U+FFFD, unknown objects their ``str``."""
    if isinstance(value, Mapping):
        return {_clean(str(k)): _clean(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(v) for v in value]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if value is None or isinstance(value, (bool, int)):
        return value
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a NumPy or torch scalar
        value = value.item()
    if isinstance(value, (int, float)):
        return value if math.isfinite(value) else None
    return str(value)


def _summary_writer(path: Path, wanted: bool | None) -> Any:
    if wanted is False:
        return None
    from importlib.util import find_spec

    if find_spec("tensorboard") is None or find_spec("torch") is None:
        if wanted:
            raise ImportError("tensorboard=True needs the packages tensorboard and torch: pip install tensorboard")
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(path))
