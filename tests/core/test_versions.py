from __future__ import annotations

import pytest

from gem_core import _versions
from gem_core._versions import release, require_framework


@pytest.mark.parametrize(
    ("text", "numbers"), [("1.16.0", (1, 16, 0)), ("2", (2, 0, 0)), ("0.9.1.dev3", (0, 9, 1)), ("2.0rc1", (2, 0, 0))]
)
def test_a_version_is_three_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert release(text) == numbers


@pytest.mark.parametrize("found", ["0.29.1", "2.0.0", "2.1.0rc1"])
def test_a_version_outside_the_range_is_refused_by_name(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(_versions.ALLOW_UNTESTED, raising=False)
    monkeypatch.setattr(_versions, "version", lambda name: found)
    with pytest.raises(ImportError, match=rf"1\.0\.0 up to, not including, 2\.0\.0; frame {found} is installed"):
        require_framework("frame", "gem_frame", "frame", oldest="1.0.0", below="2.0.0")
    monkeypatch.setenv(_versions.ALLOW_UNTESTED, "1")
    with pytest.warns(UserWarning, match="is installed"):
        assert require_framework("frame", "gem_frame", "frame", oldest="1.0.0", below="2.0.0") == found


def test_served_versions_pass_and_a_missing_framework_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ImportError, match=r"pip install 'gem-adapters\[frame\]'"):
        require_framework("no-such-framework", "gem_frame", "frame", served=("0.9.1",))
    monkeypatch.setattr(_versions, "version", lambda name: "0.9.1")
    assert require_framework("frame", "gem_frame", "frame", served=("0.9.0", "0.9.1")) == "0.9.1"
    with pytest.raises(ImportError, match=r"supports frame 0\.9\.0; frame 0\.9\.1"):
        require_framework("frame", "gem_frame", "frame", served=("0.9.0",))
