"""Where the pages of the WikiGame come from: a JSON graph, a ZIM file, or a wiki over its MediaWiki API.

All are opened by name (:func:`open_store`), and nothing is imported or read before the first page is asked for.
"""

from __future__ import annotations

import json
import random
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, runtime_checkable
from urllib.parse import unquote, urljoin, urlsplit

_MAX_LINKS = 200  # of one page; what lies beyond is no link
_MAX_TEXT = 600  # characters of a page's text
_DRAWS = 500
_CACHED_PAGES = 1024


@dataclass(frozen=True)
class Page:
    """One page: its title, the first sentences of its text, and the titles that it links to."""

    title: str
    text: str
    links: tuple[str, ...]


class PageNotFound(LookupError):
    """The store has no page of that title."""


@runtime_checkable
class PageStore(Protocol):
    """What the WikiGame asks of a store. The same ``rng`` state draws the same title while the store is unchanged."""

    def page(self, title: str) -> Page:
        """The page of a title or redirect; raises :class:`PageNotFound`."""

    def draw_title(self, rng: random.Random) -> str:
        """The title of a random page that has links."""


def fold(title: str) -> str:
    """The form in which titles are compared: NFKC, case folded, underscores and runs of blanks as one blank."""
    return " ".join(unicodedata.normalize("NFKC", title).casefold().replace("_", " ").split())


def check_store_name(store: str | None) -> None:
    """Raises ValueError where :func:`open_store` would not know what ``store`` is."""
    if store is None or _is_url(store) or PurePosixPath(store).suffix.lower() in (".json", ".zim"):
        return
    raise ValueError(f"store={store!r} is none of: a .json graph, a .zim file, the http(s) address of a wiki's api.php")


@lru_cache(maxsize=16)
def open_store(store: str | None) -> PageStore:
    """Opens a store by name, once per process; None is the graph that ships with the package.

    Raises:
        ValueError: a name of another kind, or a graph of another form.
        FileNotFoundError: no such file.
        ImportError: a package is missing; the message says which extra brings it.
    """
    check_store_name(store)
    if store is None:
        text = (resources.files("gem_core") / "data" / "wiki_pages.json").read_text(encoding="utf-8")
        return GraphStore(json.loads(text), "the built-in graph")
    if _is_url(store):
        return MediaWikiStore(store)
    if not Path(store).is_file():
        raise FileNotFoundError(f"store={store!r} is no file")
    if store.lower().endswith(".zim"):
        return ZimStore(store)
    return GraphStore(json.loads(Path(store).read_text(encoding="utf-8")), store)


def _is_url(store: str) -> bool:
    return store.startswith(("http://", "https://"))


class GraphStore:
    """Pages held in memory: ``{"pages": [{"title": ..., "text": ..., "links": [titles]}, ...]}``.

    Links to titles that the graph does not have are left out.
    """

    def __init__(self, graph: Any, name: str = "graph") -> None:
        try:
            rows = [(str(row["title"]), str(row.get("text", "")), list(row["links"])) for row in graph["pages"]]
        except (KeyError, TypeError, AttributeError) as e:
            raise ValueError(
                f'{name} is not of the form {{"pages": [{{"title", "text", "links"}}, ...]}}: {e!r}'
            ) from e
        titles = {fold(title): title for title, _, _ in rows}
        if len(titles) != len(rows):
            raise ValueError(f"{name} has two pages whose titles differ in no more than case or blanks")
        self._pages: dict[str, Page] = {}
        for title, text, links in rows:
            known = dict.fromkeys(titles[key] for link in links if (key := fold(str(link))) in titles)
            self._pages[fold(title)] = Page(title, text, tuple(known))
        #: All titles, in the order of the graph.
        self.titles: tuple[str, ...] = tuple(title for title, _, _ in rows)
        self._linked = [p.title for p in self._pages.values() if p.links]
        if not self._linked:
            raise ValueError(f"{name} has no page with a link")

    def page(self, title: str) -> Page:
        try:
            return self._pages[fold(title)]
        except KeyError:
            raise PageNotFound(f"there is no page {title!r}") from None

    def draw_title(self, rng: random.Random) -> str:
        return rng.choice(self._linked)

    def distances(self, start: str) -> dict[str, int]:
        """Links to follow from ``start`` to each page that can be reached, by breadth-first search."""
        found = {self.page(start).title: 0}
        queue = list(found)
        for title in queue:
            onward = found[title] + 1
            for link in self._pages[fold(title)].links:
                if link not in found:
                    found[link] = onward
                    queue.append(link)
        return found

    def shortest_path(self, start: str, target: str) -> list[str] | None:
        """Titles to name, one after the other, to get from ``start`` to ``target``; None where no way leads there."""
        goal = self.page(target).title
        came = {self.page(start).title: ""}
        queue = list(came)
        for title in queue:
            if title == goal:
                path = []
                while came[title]:
                    path.append(title)
                    title = came[title]
                return path[::-1]
            for link in self._pages[fold(title)].links:
                if link not in came:
                    came[link] = title
                    queue.append(link)
        return None


class _Cached:
    """Keeps the pages fetched last; the subclass fetches."""

    def __init__(self) -> None:
        self._cache: dict[str, Page] = {}

    def page(self, title: str) -> Page:
        key = fold(title)
        page = self._cache.get(key)
        if page is None:
            page = self._fetch(title)
            while len(self._cache) >= _CACHED_PAGES:
                self._cache.pop(next(iter(self._cache)), None)
            self._cache[key] = page
        return page

    def _fetch(self, title: str) -> Page:
        raise NotImplementedError


class MediaWikiStore(_Cached):
    """A wiki over the HTTP API of MediaWiki (``https://HOST/w/api.php``): intro text and article links.

    Text needs the wiki's TextExtracts extension, as Wikipedia has it; without it pages show links only.
    """

    def __init__(self, url: str, timeout: float = 20.0) -> None:
        try:
            import httpx
        except ModuleNotFoundError as e:
            raise ImportError("a wiki over HTTP needs httpx: pip install 'gem-adapters[search]'") from e
        super().__init__()
        self.url = url
        self._client = httpx.Client(
            timeout=timeout,
            follow_redirects=True,
            transport=httpx.HTTPTransport(retries=2),
            headers={"User-Agent": "gem-adapters WikiGame (https://pypi.org/project/gem-adapters)"},
        )

    def _query(self, **params: str | int) -> dict[str, Any]:
        reply = self._client.get(self.url, params={"action": "query", "format": "json", "formatversion": 2, **params})
        reply.raise_for_status()
        data: dict[str, Any] = reply.json()
        if "error" in data:
            raise RuntimeError(f"{self.url} answered {data['error']}")
        return data

    def _fetch(self, title: str) -> Page:
        params: dict[str, str | int] = {
            "titles": title,
            "redirects": 1,
            "prop": "extracts|links",
            "exintro": 1,
            "explaintext": 1,
            "plnamespace": 0,
            "pllimit": "max",
        }
        name, text, links = title, "", dict[str, None]()
        more: dict[str, Any] = {}
        while True:
            data = self._query(**params, **more)
            page = data["query"]["pages"][0]
            if page.get("missing") or page.get("invalid"):
                raise PageNotFound(f"there is no page {title!r}")
            name, text = page["title"], text or page.get("extract", "")
            links.update(dict.fromkeys(link["title"] for link in page.get("links", ())))
            more = data.get("continue", {})
            if not more or len(links) >= _MAX_LINKS:
                return Page(name, _shorten(text), tuple(links)[:_MAX_LINKS])

    def draw_title(self, rng: random.Random) -> str:
        for _ in range(_DRAWS):
            prefix = "".join(rng.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=2)).title()
            data = self._query(list="allpages", apfilterredir="nonredirects", apfrom=prefix, aplimit=50)
            titles = [row["title"] for row in data["query"]["allpages"]]
            if titles:
                title = rng.choice(titles)
                if self.page(title).links:
                    return str(title)
        raise RuntimeError(f"{self.url} gave no page with links in {_DRAWS} draws")


class ZimStore(_Cached):
    """An offline wiki in a ZIM file (openZIM, Kiwix), read with the package libzim."""

    def __init__(self, path: str) -> None:
        try:
            from libzim.reader import Archive
        except ModuleNotFoundError as e:
            raise ImportError("a .zim file needs libzim: pip install 'gem-adapters[zim]'") from e
        super().__init__()
        self._archive: Any = Archive(Path(path))
        self.path = path

    def _fetch(self, title: str) -> Page:
        archive = self._archive
        path = title.replace(" ", "_")
        if archive.has_entry_by_title(title):
            entry = archive.get_entry_by_title(title)
        elif archive.has_entry_by_path(path):
            entry = archive.get_entry_by_path(path)
        else:
            raise PageNotFound(f"there is no page {title!r}")
        page = self._read(entry)
        if page is None:
            raise PageNotFound(f"{title!r} is no HTML page")
        return page

    def _read(self, entry: Any) -> Page | None:
        if entry.is_redirect:
            entry = entry.get_redirect_entry()
        item = entry.get_item()
        if "html" not in item.mimetype:
            return None
        reader = _HtmlPage()
        reader.feed(bytes(item.content).decode("utf-8", "replace"))
        links = dict[str, None]()
        for href in reader.hrefs:
            if urlsplit(href).scheme or href.startswith(("//", "#")):
                continue
            path = unquote(urlsplit(urljoin("/" + entry.path, href)).path).lstrip("/")
            if self._archive.has_entry_by_path(path):
                title = self._archive.get_entry_by_path(path).title
                if title != entry.title:
                    links[title] = None
            if len(links) >= _MAX_LINKS:
                break
        return Page(entry.title, _shorten(" ".join(" ".join(reader.text).split())), tuple(links))

    def draw_title(self, rng: random.Random) -> str:
        for _ in range(_DRAWS):
            entry = self._archive._get_entry_by_id(rng.randrange(self._archive.all_entry_count))
            page = None if entry.is_redirect else self._read(entry)
            if page is not None and page.links:
                return page.title
        raise RuntimeError(f"{self.path} gave no page with links in {_DRAWS} draws")


class _HtmlPage(HTMLParser):
    """Collects link addresses and the text of paragraphs."""

    def __init__(self) -> None:
        super().__init__()
        self.hrefs: list[str] = []
        self.text: list[str] = []
        self._in_paragraph = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "p":
            self._in_paragraph = True
        elif tag == "a" and (href := dict(attrs).get("href")):
            self.hrefs.append(href)

    def handle_endtag(self, tag: str) -> None:
        if tag == "p":
            self._in_paragraph = False

    def handle_data(self, data: str) -> None:
        if self._in_paragraph:
            self.text.append(data)


def _shorten(text: str) -> str:
    if len(text) <= _MAX_TEXT:
        return text
    return text[:_MAX_TEXT].rsplit(" ", 1)[0] + " ..."
