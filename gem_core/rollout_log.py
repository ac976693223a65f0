"""A rollout's log: finished episodes, one JSON object a line, that a later run goes on from."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from gem_core.episode import Episode


class RolloutLog:
    """Appends episodes to a file.

    A line is written by one system call before its episode is given out, so an episode that somebody has seen is in
    the file. A line that a crash cut short is removed when the file is opened again.

    Args:
        path: Created with its folder if it does not exist.

    Raises:
        ValueError: a complete line holds no episode, or two lines hold the same one.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        #: Where in the file each episode begins; read one at a time, since all of them may not fit in memory.
        self._offsets: dict[str, int] = {}
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            self._index()
        except BaseException:
            os.close(self._fd)
            raise

    def _index(self) -> None:
        end = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    break
                try:
                    name = json.loads(line)["episode_id"]
                except (ValueError, KeyError, TypeError) as e:
                    raise ValueError(f"{self.path}, line {number}: no episode: {e}") from e
                if name in self._offsets:
                    raise ValueError(f"{self.path}, line {number}: episode {name!r} is there twice")
                self._offsets[name] = end
                end += len(line)
        os.ftruncate(self._fd, end)

    def __contains__(self, episode_id: str) -> bool:
        return episode_id in self._offsets

    def __len__(self) -> int:
        return len(self._offsets)

    def read(self, episode_id: str) -> Episode:
        with self.path.open("rb") as file:
            file.seek(self._offsets[episode_id])
            return Episode.from_json(file.readline().decode("utf-8"))

    def append(self, episode: Episode) -> None:
        """Raises ValueError where the episode is in the log already."""
        if episode.episode_id in self._offsets:
            raise ValueError(f"episode {episode.episode_id!r} is in {self.path} already")
        # Lone surrogates, which a tokenizer may decode to, are no UTF-8.
        line = (episode.to_json() + "\n").encode("utf-8")
        self._offsets[episode.episode_id] = os.lseek(self._fd, 0, os.SEEK_END)
        while line:
            line = line[os.write(self._fd, line) :]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._fd)
        self._fd = -1
