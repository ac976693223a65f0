"""Griffe extension: reads what the code's docstrings hold as MkDocs wants it.

Comments that begin with ``#:`` above an attribute (or behind it) are its docstring, and Sphinx's roles
(``:func:`name```) become links.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:func|class|meth|mod|data|attr|exc|obj):`(~?)\.?([^`<>]+)`")
_LITERAL_BLOCK = re.compile(r"::(?=\n\n +)|^::$", re.MULTILINE)


class Docstrings(griffe.Extension):
    """See the module."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        """Takes the ``#:`` comment above an attribute, or behind it."""
        if attr.docstring is not None or attr.lineno is None:
            return
        lines = attr.lines_collection[attr.filepath]
        comment: list[str] = []
        row = attr.lineno - 2  # the line above, counted from 0
        while row >= 0 and (text := lines[row].strip()).startswith("#:"):
            comment.insert(0, text[2:].strip())
            row -= 1
        if not comment and "#:" in lines[attr.lineno - 1]:
            comment = [lines[attr.lineno - 1].split("#:", 1)[1].strip()]
        if comment:
            attr.docstring = griffe.Docstring("\n".join(comment), parent=attr, lineno=row + 2)

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Rewrites all docstrings once everything is known."""
        self._rewrite(pkg, set())

    def _rewrite(self, obj: Any, seen: set[int]) -> None:
        if obj.is_alias or id(obj) in seen:
            return
        seen.add(id(obj))
        if obj.docstring is not None:
            obj.docstring.value = _markdown(obj.docstring.value, obj)
        for member in obj.members.values():
            self._rewrite(member, seen)


def _markdown(text: str, obj: Any) -> str:
    text = _LITERAL_BLOCK.sub(lambda m: ":" if m.start() and text[m.start() - 1] != "\n" else "", text)

    def link(match: re.Match[str]) -> str:
        short, name = bool(match[1]), match[2]
        shown = f"<code>{name.rsplit('.', 1)[-1] if short else name}</code>"
        target = _resolve(name, obj)
        # Optional: plain where the reference does not show the target.
        return f'<autoref identifier="{target}" optional>{shown}</autoref>' if target else shown

    return _ROLE.sub(link, text)


def _resolve(name: str, obj: Any) -> str | None:
    """The full path of what a reference means, seen from ``obj``."""
    package = obj.package
    scopes: list[str] = []
    scope: Any = obj
    while scope is not None:
        scopes.append(f"{scope.path}.{name}")
        scope = scope.parent
    for path in (name, *scopes):
        if not path.startswith(f"{package.path}."):
            continue
        try:
            found = package[path.removeprefix(f"{package.path}.")]
            return str((found.final_target if found.is_alias else found).path)
        except (KeyError, griffe.AliasResolutionError, griffe.CyclicAliasError):
            continue
    return name if "." in name else None  # of another package
