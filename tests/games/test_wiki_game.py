"""WikiGame: the built-in graph, distances, rewards, and the three kinds of page store."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import gem_core as gem
from gem_core.envs.game_env import page_stores
from gem_core.envs.game_env.oracles import oracle_action
from gem_core.envs.game_env.page_stores import GraphStore, PageNotFound, fold, open_store
from gem_core.envs.game_env.wiki_game import WikiGameEnv

PAGES = {
    "Tea": ["Water", "China", "Cup"],
    "Water": ["Ice", "Sea"],
    "China": ["Tea", "Silk"],
    "Cup": ["Tea", "Clay"],
    "Ice": ["Water", "Café noir"],
    "Sea": ["Water", "Salt"],
    "Silk": ["China"],
    "Clay": ["Cup"],
    "Salt": ["Sea"],
    "Café noir": ["Tea"],
}


def graph() -> dict[str, Any]:
    return {"pages": [{"title": t, "text": f"All about {t}.", "links": list(links)} for t, links in PAGES.items()]}


def play_through(env: WikiGameEnv, seed: int) -> None:
    """Plays a shortest way found by trying links on copies of the game."""
    env.reset(seed=seed)
    ways = [(env.spawn(same_state=True), [])]
    while True:
        at, way = ways.pop(0)
        for link in at.page().links:
            on = at.spawn(same_state=True)
            _, reward, terminated, truncated, info = on.step(f"\\boxed{{{link}}}")
            if info["success"]:
                assert (reward, terminated, truncated) == (1.0, True, False)
                assert on.path[0] == env.start
                assert on.path[-1] == env.target
                return
            if not (terminated or truncated):
                ways.append((on, [*way, link]))


def test_the_built_in_graph_is_sound() -> None:
    store = open_store(None)
    assert isinstance(store, GraphStore)
    raw = json.loads((Path(page_stores.__file__).parents[2] / "data" / "wiki_pages.json").read_text("utf-8"))["pages"]
    assert len(raw) == len(store.titles) >= 150
    titles = {row["title"] for row in raw}
    for row in raw:
        assert set(row["links"]) <= titles
        assert len(set(row["links"])) == len(row["links"]) >= 1
        assert row["title"] not in row["links"]
        assert 20 < len(row["text"]) < 300
    for title in titles:  # from everywhere to everywhere, within the turns of both variants
        distances = store.distances(title)
        assert set(distances) == titles
        assert max(distances.values()) <= 15


@pytest.mark.parametrize(("variant", "near", "far", "turns"), [("easy", 2, 3, 30), ("hard", 4, 15, 15)])
def test_start_and_target_are_as_far_apart_as_the_variant_says(variant: str, near: int, far: int, turns: int) -> None:
    env = gem.make(f"game:WikiGame-v0-{variant}")
    assert isinstance(env, WikiGameEnv)
    store = open_store(None)
    assert isinstance(store, GraphStore)
    pairs = set()
    for seed in range(80):
        env.reset(seed=seed)
        path = store.shortest_path(env.start, env.target)
        assert path is not None
        assert near <= len(path) == store.distances(env.start)[env.target] <= far
        assert env.max_turns == turns
        pairs.add((env.start, env.target))
    assert len(pairs) > 75


def test_rewards_and_titles() -> None:
    env = WikiGameEnv(GraphStore(graph()), 6, 2, 3)
    env.reset(seed=0)
    env.start = env.current = "Tea"
    env.target, env.path = "Café noir", ["Tea"]
    table = [
        ("\\boxed{Salt}", 0.0, False, "Tea"),  # exists, but is not linked
        ("\\boxed{Tea}", 0.0, False, "Tea"),  # the page itself
        ("\\boxed{nothing of the kind}", 0.0, False, "Tea"),
        ("Let me see. \\boxed{  wAtEr }", 0.0, True, "Water"),
        ("\\boxed{Ice}", 0.0, True, "Ice"),
    ]
    for action, reward, legal, page in table:
        _, got, terminated, truncated, info = env.step(action)
        assert (got, terminated, truncated, info["action_is_valid"]) == (reward, False, False, legal)
        assert env.current == page
        assert f'"{page}"' in info["suffix"]
    _, reward, terminated, truncated, info = env.step("\\boxed{CAFE\u0301_noir}")  # decomposed accent, underscore
    assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)
    assert env.path == ["Tea", "Water", "Ice", "Café noir"]


def test_the_last_turn_truncates_and_an_empty_box_ends() -> None:
    env = WikiGameEnv(GraphStore(graph()), 2, 2, 2)
    env.reset(seed=0)
    env.step("\\boxed{no such link}")
    text, reward, terminated, truncated, _ = env.step("\\boxed{no such link}")
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert "last" in text
    env.reset(seed=0)
    assert env.step("\\boxed{ }")[1:4] == (-0.1, True, False)


def test_a_page_without_links_ends_the_game() -> None:
    pages = [
        {"title": "A", "links": ["B", "C"]},
        {"title": "B", "links": []},
        {"title": "C", "links": ["D"]},
        {"title": "D", "links": ["A"]},
    ]
    env = WikiGameEnv(GraphStore({"pages": pages}), 5, 2, 2)
    env.reset(seed=0)
    env.start = env.current = "A"
    env.target = "D"
    _, reward, terminated, truncated, info = env.step("\\boxed{B}")
    assert (reward, terminated, truncated, info["success"]) == (0.0, True, False, False)


def test_fold_ignores_case_form_and_blanks() -> None:
    assert fold(" New_York  CITY ") == fold("new york city")
    assert fold("Cafe\u0301") == fold("CAF\u00c9")
    assert fold("\uff26\uff49\uff53\uff48") == fold("fish")
    assert fold("Straße") == fold("STRASSE")


def test_a_json_graph_is_read_from_its_path(tmp_path: Path) -> None:
    data = graph()
    data["pages"][0]["links"] += ["Nowhere", "water"]  # unknown, and a second time in another case
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(data), "utf-8")
    env = gem.make("game:WikiGame-v0-easy", store=str(path))
    assert isinstance(env, WikiGameEnv)
    for seed in range(5):
        play_through(env, seed)
    assert env.store.page("TEA").links == ("Water", "China", "Cup")
    with pytest.raises(PageNotFound, match="Nowhere"):
        env.store.page("Nowhere")


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"pages": []}, "no page"),
        ({"pages": [{"title": "A"}]}, "links"),
        ([1, 2], "not of the form"),
        ({"pages": [{"title": "A", "links": ["a"]}, {"title": "a", "links": ["A"]}]}, "differ"),
    ],
)
def test_a_graph_of_another_form_is_refused(data: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        GraphStore(data)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"store": "wiki.txt"}, "wiki.txt"),
        ({"store": "ftp://x/api.php"}, "ftp"),
        ({"store": 7}, "store"),
        ({"max_turns": 3, "min_distance": 4, "max_distance": None}, "min_distance=4"),
        ({"min_distance": 3, "max_distance": 2}, "max_distance=2"),
        ({"min_distance": 0}, "min_distance"),
        ({"max_turns": None}, "max_turns"),
    ],
)
def test_nonsense_is_refused_by_name(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        WikiGameEnv(**arguments)


def test_a_file_that_is_not_there_and_distances_that_no_pair_has() -> None:
    with pytest.raises(FileNotFoundError, match=r"gone\.json"):
        WikiGameEnv("gone.json").reset(seed=0)
    with pytest.raises(ValueError, match="9 to 9 links apart"):
        WikiGameEnv(GraphStore(graph()), 30, 9, 9).reset(seed=0)


# -- a wiki over HTTP -----------------------------------------------------------------------------------------------


class Wiki(BaseHTTPRequestHandler):
    """The few parameters of MediaWiki's query API that the store uses, two links a reply."""

    def do_GET(self) -> None:
        query = {k: v[0] for k, v in parse_qs(urlsplit(self.path).query).items()}
        titles = sorted(PAGES)
        if query.get("list") == "allpages":
            rows = [t for t in titles if t >= query["apfrom"]][: int(query["aplimit"])]
            reply: dict[str, Any] = {"query": {"allpages": [{"title": t} for t in rows]}}
        else:
            title = {"Eau": "Water"}.get(query["titles"], query["titles"])  # a redirect
            if title in PAGES:
                links = [*PAGES[title], "Dead link"]
                at = int(query.get("plcontinue", 0))
                page = {"title": title, "extract": f"All about {title}. " * 60}
                page["links"] = [{"ns": 0, "title": t} for t in links[at : at + 2]]  # type: ignore[assignment]
                reply = {"query": {"pages": [page]}}
                if at + 2 < len(links):
                    reply["continue"] = {"plcontinue": str(at + 2), "continue": "||"}
            else:
                reply = {"query": {"pages": [{"title": title, "missing": True}]}}
        if query.get("titles") == "Boom":
            reply = {"error": {"code": "internal", "info": "boom"}}
        body = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def wiki_url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Wiki)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/w/api.php"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_wiki_is_played_over_its_api(wiki_url: str) -> None:
    pytest.importorskip("httpx")
    env = gem.make("game:WikiGame-v0-easy", store=wiki_url)
    assert isinstance(env, WikiGameEnv)
    games = []
    for seed in range(4):
        play_through(env, seed)
        games.append((env.start, env.target))
        assert env.target not in env.store.page(env.start).links
    other = WikiGameEnv(wiki_url)
    for seed, pair in enumerate(games):
        other.reset(seed=seed)
        assert (other.start, other.target) == pair
    tea = env.store.page("Tea")
    assert tea.links == ("Water", "China", "Cup", "Dead link")  # from two replies
    assert len(tea.text) < 610
    assert env.store.page("Eau").title == "Water"
    env.reset(seed=0)
    _, reward, _, _, info = env.step("\\boxed{Dead link}")
    assert (reward, info["action_is_valid"]) == (0.0, False)
    with pytest.raises(RuntimeError, match="boom"):
        env.store.page("Boom")
    with pytest.raises(ValueError, match="MediaWikiStore"):
        oracle_action(env)


# -- a ZIM file -----------------------------------------------------------------------------------------------------


def test_a_zim_file_is_played(tmp_path: Path) -> None:
    pytest.importorskip("libzim")
    from libzim.writer import Creator, Hint, Item, StringProvider  # type: ignore[import-not-found,unused-ignore]

    class Article(Item):  # type: ignore[misc,unused-ignore]
        def __init__(self, path: str, title: str, body: str, mimetype: str = "text/html") -> None:
            super().__init__()
            self._parts = (path, title, body, mimetype)

        def get_path(self) -> str:
            return self._parts[0]

        def get_title(self) -> str:
            return self._parts[1]

        def get_mimetype(self) -> str:
            return self._parts[3]

        def get_contentprovider(self) -> Any:
            return StringProvider(self._parts[2])

        def get_hints(self) -> dict[Any, Any]:
            return {Hint.FRONT_ARTICLE: self._parts[3] == "text/html"}

    path = tmp_path / "tiny.zim"
    with Creator(str(path)).config_indexing(False, "eng") as creator:
        creator.set_mainpath("Tea")
        for title, links in PAGES.items():
            anchors = "".join(f'<a href="{t.replace(" ", "_")}">{t}</a> ' for t in links)
            body = (
                f"<html><head><title>{title}</title></head><body><p>All <b>about</b> {title}.</p>{anchors}"
                f'<a href="https://example.org/x">out</a> <a href="#top">up</a> <a href="gone">gone</a></body></html>'
            )
            creator.add_item(Article(title.replace(" ", "_"), title, body))
        creator.add_item(Article("style.css", "style", "b {}", "text/css"))
        creator.add_redirection("Eau", "Eau", "Water", {Hint.FRONT_ARTICLE: True})
    env = gem.make("game:WikiGame-v0-easy", store=str(path))
    assert isinstance(env, WikiGameEnv)
    for seed in range(4):
        play_through(env, seed)
    tea = env.store.page("Tea")
    assert (tea.title, tea.text, tea.links) == ("Tea", "All about Tea.", ("Water", "China", "Cup"))
    assert env.store.page("Eau").title == "Water"
    assert env.store.page("Ice").links == ("Water", "Café noir")
    for missing in ("gone", "style"):
        with pytest.raises(PageNotFound, match=missing):
            env.store.page(missing)


@pytest.mark.parametrize(
    ("module", "store", "extra"), [("libzim", "x.zim", "zim"), ("httpx", "http://127.0.0.1/", "search")]
)
def test_a_missing_package_is_named_with_its_extra(
    module: str, store: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [n for n in sys.modules if n.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    if store.endswith(".zim"):
        store = str(tmp_path / store)
        Path(store).touch()
    with pytest.raises(ImportError, match=rf"gem-adapters\[{extra}\]"):
        WikiGameEnv(store).reset(seed=0)


def test_nothing_heavy_is_imported_for_the_built_in_graph() -> None:
    import subprocess

    code = (
        "import sys, gem_core as gem; gem.make('game:WikiGame-v0-easy').reset(seed=0); "
        "bad = {'httpx', 'libzim', 'numpy', 'requests'} & set(sys.modules); sys.exit(str(bad) if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
