"""English words for the word games, read once a process and shared by all instances.

``common.txt``: everyday words of 3 to 10 letters, what the games hide. ``accepted.txt``: rarer words of 3 to 7 letters,
good as guesses. ``hard.txt``: words of 7 to 10 letters that most readers know and few use. No proper names, no slurs.

Chosen by frequency (wordfreq) among words of Webster's Second and GCIDE (english-words).
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def _read(name: str) -> tuple[str, ...]:
    text = files("gem_core").joinpath("data").joinpath("words").joinpath(f"{name}.txt").read_text(encoding="ascii")
    return tuple(text.split())


@cache
def words(length: int, *, common: bool = True) -> tuple[str, ...]:
    """The words with ``length`` letters, lower case, sorted; with ``common=False`` the rarer ones too.

    Raises:
        ValueError: there is no word of that length.
    """
    pool = _read("common") if common else (*_read("common"), *_read("accepted"))
    found = tuple(sorted(w for w in pool if len(w) == length))
    if not found:
        raise ValueError(f"there are no words of {length!r} letters; use 3 to 10")
    return found


@cache
def _accepted() -> frozenset[str]:
    return frozenset((*_read("common"), *_read("accepted"), *_read("hard")))


def is_word(word: str) -> bool:
    """Whether ``word``, in any case, is in one of the lists."""
    return word.lower() in _accepted()


@cache
def vocabulary(hard: bool) -> tuple[str, ...]:
    """Words to search for: ``hard`` the rarer, longer ones, else everyday words of 4 to 8 letters."""
    return _read("hard") if hard else tuple(w for w in _read("common") if 4 <= len(w) <= 8)
