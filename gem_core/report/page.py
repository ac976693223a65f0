"""Puts template and data together into one HTML file."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from gem_core.report.payload import MAX_TEXT, build_payload
from gem_core.report.runs import read_run

_SCRIPTS = ("dom.js", "charts.js", "learning.js", "browser.js", "episode.js", "app.js")


def write_report(
    run_dir: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    *,
    title: str | None = None,
    max_episodes: int = 5000,
    max_text: int = MAX_TEXT,
    compress: bool = True,
) -> Path:
    """Writes one self-contained HTML page of one or several run folders.

    Args:
        run_dir: A run folder, or several (see :class:`gem_core.run_folder.RunFolder`).
        out: The file to write. None: ``report.html`` in the run folder; of several runs in the first one's parent.
        title: Heading; the environments' ids if None.
        max_episodes: Most episodes in the page, over all runs; more are thinned out evenly, and the page says so.
        max_text: Longer texts are cut in the middle, visibly.
        compress: Embed the data gzipped (browsers since 2023 can read it); False: as plain JSON.

    Returns:
        The file's path.

    Raises:
        FileNotFoundError: a folder does not exist or is no run folder.
        ValueError: no run was given, or one of its files is not what it should be; the message names it.
    """
    paths = [run_dir] if isinstance(run_dir, (str, Path)) else list(run_dir)
    if not paths:
        raise ValueError("a report needs at least one run folder")
    share = max(1, max_episodes // len(paths)) if max_episodes >= 1 else max_episodes
    runs = [read_run(p, max_episodes=share, max_bytes=96_000_000 // len(paths)) for p in paths]
    if out is None:
        out = Path(paths[0]) / "report.html" if len(paths) == 1 else Path(paths[0]).resolve().parent / "report.html"
    out = Path(out)
    page = build_page(build_payload(runs, title=title, max_text=max_text), compress=compress)
    # Readers of a run still going never see half a page.
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        part.write_text(page, encoding="utf-8", newline="\n")
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
    return out


def build_page(payload: dict[str, Any], *, compress: bool = True) -> str:
    """The page as text. Whatever the data hold, only the template's own script runs: data are base64 or escaped
    JSON, the script shows them as text, and the content security policy names the script by its hash."""
    template = files("gem_core.report").joinpath("template")

    def read(name: str) -> str:
        return template.joinpath(name).read_text(encoding="utf-8")

    script = "(() => {\n'use strict';\n" + "\n".join(read(name) for name in _SCRIPTS) + "})();\n"
    style = read("report.css")
    text = json.dumps(payload, allow_nan=False, separators=(",", ":"))  # ASCII: lone surrogates and NUL included
    if compress:
        data = base64.b64encode(gzip.compress(text.encode("ascii"), 6, mtime=0)).decode("ascii")
    else:
        data = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    values = {
        "policy": f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'",
        "title": html.escape("".join(c if c.isprintable() else " " for c in payload["title"])[:200]),
        "style": style,
        "script": script,
        "encoding": "gzip" if compress else "plain",
        "data": data,
    }
    parts = read("report.html").split("{{")
    page = [parts[0]]
    for part in parts[1:]:  # not str.replace: no value is searched for names again
        name, _, rest = part.partition("}}")
        page += [values[name], rest]
    return "".join(page)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
