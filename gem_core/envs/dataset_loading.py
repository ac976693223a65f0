"""Finds the rows of a dataset: in memory, in local files, in the shipped samples, or on the Hugging Face hub.

A dataset is loaded once per process and shared by all environments that name it.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

logger = logging.getLogger(__name__)

#: Seconds that a hub which does not answer may cost.
HUB_TIMEOUT_S = 5.0
_SUFFIXES = (".jsonl", ".json", ".parquet", ".csv")
_SAMPLES = Path(__file__).parent.parent / "data" / "samples"


class DatasetUnavailableError(ConnectionError):
    """The hub could not be reached and the dataset is not in the local cache."""


class Rows(Protocol):
    """What an environment needs of a dataset: rows by number, each a mapping from column to value."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


@dataclass(frozen=True)
class Table:
    """Rows with the names of their columns and of where they came from."""

    rows: Rows
    columns: tuple[str, ...]
    #: For messages: ``dataset 'axon-rl/GSM-8k' (split 'train')``.
    label: str


def load_table(dataset_name: str | None, split: str | None, dataset: Any = None) -> Table:
    """Loads one split.

    Args:
        dataset_name: ``"sample:NAME"``; a path of a ``.jsonl``, ``.json``, ``.parquet`` or ``.csv`` file, a folder
            written by ``save_to_disk`` or one with such files (``train.jsonl`` is the split ``train``); else a
            dataset of the hub.
        split: Needed where there are several. A single file or sample is its own split, whatever the name.
        dataset: Rows in memory instead: a sequence of mappings, a ``datasets.Dataset``, or a mapping from split
            names to either (``DatasetDict`` included).

    Raises:
        ValueError: neither a name nor rows, no such split, or no rows; the message lists what there is.
        FileNotFoundError: a local path that does not exist.
        DatasetUnavailableError: the hub does not answer.
    """
    if dataset is not None:
        return _select(dataset, split, "the dataset given")
    if not dataset_name:
        raise ValueError("give dataset_name= (a hub name or a local path) or dataset= (rows in memory)")
    with _lock:
        gate = _gates.setdefault(dataset_name, threading.Lock())
    with gate:  # one thread loads, the others wait for it
        key, loaded = _cached(dataset_name)
        if loaded is None:
            loaded = _load(dataset_name)
            with _lock:
                _cache[dataset_name] = (key, loaded)
    return _select(loaded, split, f"dataset {dataset_name!r}")


def clear_cache() -> None:
    """Forgets all loaded datasets; environments that hold one keep it."""
    with _lock:
        _cache.clear()


_lock = threading.Lock()
_gates: dict[str, threading.Lock] = {}
_cache: dict[str, tuple[Any, Any]] = {}


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _gates.clear()


os.register_at_fork(after_in_child=_after_fork)


def _cached(name: str) -> tuple[Any, Any]:
    """The version on disk (None for what has none) and what is loaded of it."""
    path = Path(name).expanduser()
    version = path.stat().st_mtime_ns if path.exists() else None
    with _lock:
        kept = _cache.get(name)
    return version, kept[1] if kept and kept[0] == version else None


def _load(name: str) -> Any:
    if name.startswith("sample:"):
        return _load_sample(name.removeprefix("sample:"))
    path = Path(name).expanduser()
    if path.is_file():
        return _load_file(path)
    if path.is_dir():
        return _load_folder(path)
    if path.suffix in _SUFFIXES or name.startswith((".", "/", "~")):
        raise FileNotFoundError(f"there is no file or folder {name!r} (looked in {Path.cwd()})")
    return _load_from_hub(name)


def _load_sample(name: str) -> Any:
    path = _SAMPLES / f"{name}.jsonl"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in _SAMPLES.glob("*.jsonl")))
        raise ValueError(f"there is no sample {name!r}; the samples are: {known}")
    return _load_file(path)


def _load_file(path: Path) -> Any:
    if path.suffix == ".jsonl":
        return _read_jsonl(path)
    if path.suffix == ".json":
        rows = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(rows, list):
            raise ValueError(f"{path} holds a {type(rows).__name__}, not a list of rows")
        return rows
    datasets = _datasets()
    if path.suffix in (".parquet", ".csv"):
        return getattr(datasets.Dataset, f"from_{path.suffix[1:]}")(str(path))
    raise ValueError(f"{path} is none of {', '.join(_SUFFIXES)}")


def _read_jsonl(path: Path) -> list[dict[str, Any]]:
    rows = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as e:
                raise ValueError(f"{path}, line {number} is not JSON: {e}") from None
            if not isinstance(row, dict):
                raise ValueError(f"{path}, line {number} is a JSON {type(row).__name__}, not an object")
            rows.append(row)
    return rows


def _load_folder(path: Path) -> Any:
    if (path / "dataset_dict.json").exists() or (path / "state.json").exists():
        return _datasets().load_from_disk(str(path))
    files = sorted(p for p in path.iterdir() if p.suffix in _SUFFIXES)
    stems = {f.stem for f in files}
    if files and len(stems) == len(files) and not any("-of-" in s for s in stems):
        return {f.stem: _load_file(f) for f in files}
    if not files and not any(p.suffix in _SUFFIXES for p in path.glob("*/*")):
        raise ValueError(f"the folder {path} holds no {', '.join(_SUFFIXES)} file and nothing written by save_to_disk")
    return _datasets().load_dataset(str(path))  # sharded files: the library joins them and names the splits


def _load_from_hub(name: str) -> Any:
    datasets = _datasets()
    problem = "the hub is switched off (HF_HUB_OFFLINE)" if datasets.config.HF_HUB_OFFLINE else _ask_hub(name)
    if problem is None:
        return datasets.load_dataset(name)
    cached = _from_hub_cache(name)
    if cached is None:
        raise DatasetUnavailableError(
            f"dataset {name!r} cannot be fetched: {problem}. Give dataset_name= a local .jsonl or .parquet file or a "
            "folder written by datasets' save_to_disk, dataset= rows in memory, or dataset_name='sample' for the small "
            "sample that ships with gem_core"
        )
    logger.warning("dataset %r is taken from the local cache: %s", name, problem)
    return cached


def _from_hub_cache(name: str) -> Any:
    """What an earlier process fetched, without asking the hub again (``load_dataset`` would retry at length)."""
    from datasets.packaged_modules.cache.cache import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
        Cache,
    )

    try:
        return Cache(dataset_name=name.split("/")[-1], repo_id=name, version="auto", hash="auto").as_dataset()
    except (ValueError, OSError):  # not there
        return None


def _ask_hub(name: str) -> str | None:
    """Why the hub cannot give the dataset, or None where it can; takes :data:`HUB_TIMEOUT_S` at most.

    The ``datasets`` library itself retries for minutes when the hub is out of reach.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    answer: list[str | None] = [f"the hub did not answer within {HUB_TIMEOUT_S:g} s"]

    def ask() -> None:
        try:
            HfApi().dataset_info(name, timeout=HUB_TIMEOUT_S)
            answer[0] = None
        except HfHubHTTPError as e:
            status = getattr(e.response, "status_code", None)
            known = {401: "there is no such dataset on the hub, or it is private", 403: "access to it is refused"}
            known[404] = known[401]
            answer[0] = known.get(status or 0, f"the hub answered with status {status}")
        except Exception as e:
            answer[0] = f"the hub is out of reach ({type(e).__name__}: {e})"

    # In a thread: looking up a host name cannot be given a time limit.
    thread = threading.Thread(target=ask, name="gem-hub-probe", daemon=True)
    thread.start()
    thread.join(HUB_TIMEOUT_S)
    return answer[0]


def _datasets() -> Any:
    try:
        import datasets  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ModuleNotFoundError as e:
        raise ImportError(
            "this dataset needs the package 'datasets': pip install 'gem-adapters[math]' (a .jsonl file works without)",
            name="datasets",
        ) from e
    return datasets


# -- splits and columns -------------------------------------------------------------------------------------------


def _select(loaded: Any, split: str | None, label: str) -> Table:
    if isinstance(loaded, Mapping):
        names = list(loaded)
        if split is None and len(names) == 1:
            split = names[0]
        if split is None:
            raise ValueError(f"{label} has several splits, name one with split=: {', '.join(map(repr, names))}")
        if split not in loaded:
            raise ValueError(f"{label} has no split {split!r}; it has: {', '.join(map(repr, names)) or 'none'}")
        loaded, label = loaded[split], f"{label} (split {split!r})"
    if isinstance(loaded, (str, bytes)) or not (isinstance(loaded, Sequence) or hasattr(loaded, "column_names")):
        raise ValueError(
            f"{label} is a {type(loaded).__name__}; rows are a list of dicts, a datasets.Dataset, or a dict of splits"
        )
    if len(loaded) == 0:
        raise ValueError(f"{label} is empty")
    columns = getattr(loaded, "column_names", None)
    if columns is None:
        first = loaded[0]
        if not isinstance(first, Mapping):
            raise ValueError(f"{label}: row 0 is a {type(first).__name__}, not a dict")
        columns = list(first)
    return Table(cast(Rows, loaded), tuple(columns), label)
