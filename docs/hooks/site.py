"""MkDocs hooks: pages of files that live elsewhere in the repository, and links to them.

A page's relative links work in the repository as it is. On the site, a link to an adapter's README leads to the
adapter's page, and one to any other file of the repository to a page that shows the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
ADAPTERS = ("trl", "verl", "openrlhf", "oat", "rl2", "roll", "tinker")

_FENCE = re.compile(r"^ *(`{3,}|~{3,}).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()([^()\s]+)(\))")
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".sh": "bash", ".json": "json"}


def on_config(config: Any) -> Any:
    """Leaves out of the navigation what does not exist (yet)."""
    config.nav = _existing(config.nav)
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages of files outside ``docs/``."""
    for name in ADAPTERS:
        readme = _readme(name)
        if readme.is_file():
            files.append(_page(config, f"adapters/{name}.md", readme.read_text(encoding="utf-8"), readme))
    todo = [p for f in files.documentation_pages() for p in _linked(_source(f), f.content_string)]
    seen: set[Path] = set()
    while todo:
        path = todo.pop()
        if path in seen or _uri(path) in files.src_uris:
            continue
        seen.add(path)
        if path.is_dir():
            entries = sorted(p for p in path.iterdir() if not p.name.startswith((".", "_")))
            text = "\n".join([f"# {_name(path)}", "", *(f"- [{p.name}]({p.name})" for p in entries)])
            files.append(_page(config, _uri(path), text, path / "index"))
            todo += entries
            continue
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".md":
            todo += _linked(path, text)
        else:
            fence = "`" * 6
            text = f"# {_name(path)}\n\n{fence}{_LANGUAGES.get(path.suffix, 'text')}\n{text}\n{fence}\n"
        files.append(_page(config, _uri(path), text, path))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turns links to files of the repository into links to their pages."""
    source = _source(page.file)

    def rewrite(match: re.Match[str]) -> str:
        target, mark, anchor = match[2].partition("#")
        path = _resolve(source, target)
        if path is None:
            return match[0]
        uri = path.relative_to(DOCS).as_posix() if path.is_relative_to(DOCS) else _uri(path)
        # What a page of its own shows has its own anchors.
        anchor = f"{mark}{anchor}" if path.suffix == ".md" else ""
        return f"{match[1]}{os.path.relpath(uri, Path(page.file.src_uri).parent)}{anchor}{match[3]}"

    return "".join(text if code else _LINK.sub(rewrite, text) for code, text in _parts(markdown))


def _parts(markdown: str) -> Iterator[tuple[bool, str]]:
    """Text and fenced code in turn, with a flag that says which."""
    position = 0
    for fence in _FENCE.finditer(markdown):
        yield False, markdown[position : fence.start()]
        yield True, fence[0]
        position = fence.end()
    yield False, markdown[position:]


def _linked(source: Path, markdown: str) -> list[Path]:
    """The files outside ``docs/`` that a page links to."""
    targets = [m[2].partition("#")[0] for code, text in _parts(markdown) if not code for m in _LINK.finditer(text)]
    paths = [p for t in targets if (p := _resolve(source, t)) is not None]
    return [p for p in paths if not p.is_relative_to(DOCS) and p.exists()]


def _resolve(source: Path, target: str) -> Path | None:
    """What a relative link in ``source`` points to; None for anything else."""
    if not target or target.startswith("/") or re.match(r"[a-z]+:", target):
        return None
    path = Path(os.path.normpath(source.parent / target))
    return path if path.is_relative_to(ROOT) else None


def _uri(path: Path) -> str:
    """The page that shows a file from outside ``docs/``."""
    for name in ADAPTERS:
        if path in (_readme(name), _readme(name).parent):
            return f"adapters/{name}.md"
    if path == ROOT / "README.md":
        return "index.md"
    return f"source/{_name(path)}" + ("" if path.suffix == ".md" else ".md")


def _readme(name: str) -> Path:
    return ROOT / "adapters" / f"gem_{name}" / "README.md"


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _page(config: Any, uri: str, content: str, source: Path) -> File:
    file = File.generated(config, uri, content=content)
    file.gem_source = source  # type: ignore[attr-defined]
    if uri.startswith("source/"):
        from mkdocs.structure.files import InclusionLevel

        file.inclusion = InclusionLevel.NOT_IN_NAV
    return file


def _source(file: File) -> Path:
    """Where a page's relative links start from."""
    return Path(getattr(file, "gem_source", DOCS / file.src_uri))


def _existing(nav: list[Any]) -> list[Any]:
    kept = []
    for item in nav:
        if isinstance(item, dict):
            ((title, value),) = item.items()
            if isinstance(value, list):
                kept.append({title: _existing(value)})
            elif _exists(value):
                kept.append(item)
        elif _exists(item):
            kept.append(item)
    return kept


def _exists(uri: str) -> bool:
    name = Path(uri).stem
    return (DOCS / uri).is_file() or (uri == f"adapters/{name}.md" and _readme(name).is_file())
