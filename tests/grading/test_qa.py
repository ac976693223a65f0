"""Exact match and F1 of short answers."""

from __future__ import annotations

import pytest

from gem_core.envs.qa_env import QaEnv
from gem_core.grading.qa import exact_match, f1_score, grade_qa, normalize


@pytest.mark.parametrize(
    ("answer", "gold", "equal"),
    [
        ("Paris", ["Paris"], True),
        ("  the PARIS. ", "Paris", True),
        ("Berlin", ["Paris", "Berlin"], True),
        ("London", ["Paris"], False),
        ("42", [42, "other"], True),
        ("43", 42, False),
        ("Beyonce", "Beyoncé", True),
        ("Beyonce\u0301", "Beyoncé", True),
        ("STRASSE", "straße", True),
        ("ﬁsh", "fish", True),
        ("“Hamlet”", "Hamlet", True),
        ("１９６９", "1969", True),
        ("東京。", "東京", True),
        ("かき", "がき", False),  # voicing marks are not accents
        ("an apple a day", "apple day", True),
        ("theatre", "atre", False),
        ("No", "yes", False),
        ("", "", True),
    ],
)
def test_exact_match(answer: str, gold: object, equal: bool) -> None:
    assert exact_match(answer, gold) is equal
    assert QaEnv.check_correct(answer, gold) is equal


def test_f1() -> None:
    assert f1_score("the quick brown fox", "quick fox jumps") == pytest.approx(2 * (2 / 3 * 2 / 3) / (4 / 3))
    assert f1_score("cat", "dog") == 0.0
    assert f1_score("東京都", "東京") == pytest.approx(0.8)
    assert f1_score("", "") == 1.0
    assert f1_score("", "x") == 0.0


def test_the_best_reference_counts() -> None:
    verdict = grade_qa("Marie Curie", ["Pierre Curie", "Marie Skłodowska Curie"])
    assert not verdict.exact
    assert verdict.gold == "Marie Skłodowska Curie"
    assert verdict.f1 == pytest.approx(0.8)


def test_normalize_matches_squad_on_ascii() -> None:
    assert normalize("The  U.S.-based (A) answer!") == "usbased answer"


def test_no_reference_is_refused() -> None:
    with pytest.raises(ValueError, match="empty list"):
        exact_match("x", [])
