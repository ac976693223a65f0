from __future__ import annotations

import json
import pickle
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

import gem_core
from gem_core.tools.search_index import BM25Index, DenseIndex, Document, load_corpus
from gem_core.tools.search_server import SearchServer
from gem_core.tools.search_tool import SearchTool
from gem_core.wrappers.wrapper_factory import get_wrapper_fns


@pytest.fixture(scope="module")
def server() -> Iterator[SearchServer]:
    with SearchServer(BM25Index(load_corpus())) as running:
        yield running


@contextmanager
def stub(answer: Callable[[BaseHTTPRequestHandler, bytes], None]) -> Iterator[str]:
    """A server of one function that gets the request's handler and body."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            answer(self, self.rfile.read(int(self.headers["Content-Length"])))

        def log_message(self, format: str, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_address[1]}/retrieve"
    finally:
        http.shutdown()
        http.server_close()


def send(handler: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


PASSAGE = {"document": {"contents": "Title\nText."}, "score": 1.0}
FOUND = "\n\n<information>Doc 1(Title: Title) Text.\n</information>\n\n"


# -- the tool ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire_format", ["auto", "json", "msgpack"])
def test_a_query_finds_its_passage(server: SearchServer, wire_format: Any) -> None:
    tool = SearchTool(search_url=server.url, topk=2, wire_format=wire_format)
    valid, has_error, observation, parsed = tool.execute_action("Hm. <search>capital of Australia</search> tail")
    assert (valid, has_error) == (True, False)
    assert observation.startswith("\n\n<information>Doc 1(Title: Canberra) Canberra is the capital of Australia.")
    assert "Doc 2(" in observation
    assert "Doc 3(" not in observation
    assert observation.endswith("</information>\n\n")
    assert parsed == "Hm. <search>capital of Australia</search>"
    tool.close()
    tool.close()
    assert tool.execute_action("<search>Tokyo</search>")[1] is False  # closed tools open again
    tool.close()


def test_chat_calls_are_understood(server: SearchServer) -> None:
    tool = SearchTool(search_url=server.url, topk=1)
    action = '<tool_call>\n{"name": "search", "arguments": {"query": "largest planet"}}\n</tool_call>'
    assert "Jupiter" in tool.execute_action(action)[2]
    valid, has_error, observation, _ = tool.execute_action('<tool_call>{"name": "search"}</tool_call>')
    assert (valid, has_error) == (True, True)
    assert "query" in observation
    assert tool.execute_action('<tool_call>{"name": "other"}</tool_call>')[0] is False
    assert tool.execute_action("just text") == (False, True, "", "")
    tool.close()


def test_nothing_found_is_no_error(server: SearchServer) -> None:
    tool = SearchTool(search_url=server.url)
    _, has_error, observation, _ = tool.execute_action("<search>zyxwv qqq</search>")
    assert has_error is False
    assert "Nothing was found." in observation
    tool.close()


def test_many_threads_share_one_tool(server: SearchServer) -> None:
    tool = SearchTool(search_url=server.url, topk=1)
    titles = [d.contents.split("\n")[0] for d in load_corpus()]
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda t: tool.execute_action(f"<search>{t}</search>")[2], titles * 2))
    wrong = [t for t, text in zip(titles * 2, found, strict=True) if f"Title: {t})" not in text]
    assert wrong == []
    tool.close()


def test_the_wrapper_by_name(server: SearchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_URL", server.url)
    (fn,) = get_wrapper_fns("search_tool")
    env = fn(gem_core.make("game:GuessTheNumber-v0"))
    env.reset(seed=0)
    observation, reward, *_, info = env.step("<search>Marie Curie</search>")
    assert "polonium" in observation
    assert reward == pytest.approx(0.3)
    assert info["tool_type"] == "search"
    env.close()


def test_a_copy_in_another_process_works(server: SearchServer) -> None:
    tool = SearchTool(search_url=server.url)
    tool.execute_action("<search>Nile</search>")
    copy = pickle.loads(pickle.dumps(tool))
    assert "Khartoum" in copy.execute_action("<search>Nile</search>")[2]
    tool.close()
    copy.close()


# -- servers that misbehave ----------------------------------------------------------------------------------------


def test_a_server_that_hangs_takes_the_time_out_and_no_longer() -> None:
    release = threading.Event()
    with stub(lambda handler, body: release.wait(5) and None) as url:  # type: ignore[func-returns-value]
        tool = SearchTool(search_url=url, timeout=0.5)
        tool.find("<search>x</search>")
        start = time.perf_counter()
        _, has_error, observation, _ = tool.execute_action("<search>x</search>")
        took = time.perf_counter() - start
        release.set()
    assert has_error is True
    assert "within 0.5 s" in observation
    assert 0.45 < took < 1.5
    tool.close()


def test_a_server_that_drips_is_cut_off_too() -> None:
    def drip(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        try:
            for _ in range(40):
                handler.wfile.write(b" ")
                handler.wfile.flush()
                time.sleep(0.05)
        except OSError:
            pass

    with stub(drip) as url:
        tool = SearchTool(search_url=url, timeout=0.4)
        start = time.perf_counter()
        assert tool.execute_action("<search>x</search>")[1] is True
        assert time.perf_counter() - start < 1.4
        tool.close()


def test_a_busy_server_is_tried_again() -> None:
    statuses = iter([503, 429])

    def busy(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        status = next(statuses, 200)
        send(handler, status, json.dumps({"result": [[PASSAGE]]}).encode())

    with stub(busy) as url:
        tool = SearchTool(search_url=url)
        assert tool.execute_action("<search>x</search>")[1:3] == (False, FOUND)
        tool.close()


@pytest.mark.parametrize("refusal", [415, 422, None])
def test_a_server_that_speaks_gem_s_messagepack_only(refusal: int | None) -> None:
    bodies: list[Any] = []

    def gem(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if body[:1] == b"{":
            if refusal is None:
                handler.close_connection = True  # hangs up
            else:
                send(handler, refusal, b"bad request")
            return
        bodies.append(msgspec.msgpack.decode(body))
        send(handler, 200, msgspec.msgpack.encode({"result": [PASSAGE]}))

    with stub(gem) as url:
        tool = SearchTool(search_url=url, topk=4)
        assert tool.execute_action("<search>x y</search>")[1:3] == (False, FOUND)
        assert tool.wire_format == "msgpack"
        assert tool.execute_action("<search>x y</search>")[1] is False
        tool.close()
    assert bodies == [{"query": "x y", "topk": 4, "return_scores": True}] * 2


@pytest.mark.parametrize(
    ("status", "body", "word"),
    [
        (404, b"", "404"),
        (500, b"boom", "500"),
        (200, b"<html>", "not JSON"),
        (200, b'{"answer": 1}', "no list 'result'"),
        (200, b'{"result": [[{"document": {}}]]}', "no 'contents'"),
        (400, b"what?", "400"),
    ],
)
def test_a_useless_answer_is_an_error_observation(status: int, body: bytes, word: str) -> None:
    with stub(lambda handler, _: send(handler, status, body)) as url:
        tool = SearchTool(search_url=url, wire_format="json")
        valid, has_error, observation, _ = tool.execute_action("<search>x</search>")
        assert (valid, has_error) == (True, True)
        assert "[SearchTool Error: " in observation
        assert word in observation or (word == "not JSON" and "Error" in observation)
        tool.close()


def test_no_server_is_an_error_observation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEARCH_URL", raising=False)
    tool = SearchTool()
    assert "SEARCH_URL" in tool.execute_action("<search>x</search>")[2]
    tool.search_url = "http://127.0.0.1:9/retrieve"  # nobody listens there
    assert "ConnectError" in tool.execute_action("<search>x</search>")[2]
    tool.close()


@pytest.mark.parametrize(("kwargs", "word"), [({"topk": 0}, "topk"), ({"timeout": 0}, "timeout")])
def test_bad_arguments_are_named(kwargs: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        SearchTool(**kwargs)


# -- the server ----------------------------------------------------------------------------------------------------


def test_search_r1_s_wire_format(server: SearchServer) -> None:
    body = {"queries": ["deepest lake", "first novel of Cervantes"], "topk": 2, "return_scores": True}
    result = httpx.post(server.url, json=body).json()["result"]
    assert [row[0]["document"]["contents"].split("\n")[0] for row in result] == ["Lake Baikal", "Don Quixote"]
    assert all(len(row) <= 2 for row in result)
    assert result[0][0]["score"] > 0
    body["return_scores"] = False
    assert httpx.post(server.url, json=body).json()["result"][0][0]["score"] is None


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'{"queries": "x"}', b'{"query": 3}', b'{"query": "x", "topk": -1}', b"\xff\xff\x00"],
)
def test_bad_requests_are_told_why(server: SearchServer, body: bytes) -> None:
    response = httpx.post(server.url, content=body)
    assert response.status_code == 400
    assert response.json()["error"]


def test_other_paths_and_oversized_bodies(server: SearchServer) -> None:
    base = server.url.removesuffix("/retrieve")
    assert httpx.get(f"{base}/health").json() == {"status": "ok"}
    assert httpx.get(f"{base}/x").status_code == 404
    assert httpx.post(f"{base}/x", content=b"{}").status_code == 404
    with socket.create_connection(("127.0.0.1", int(base.rpartition(":")[2])), timeout=5) as raw:
        raw.sendall(b"POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 413")
    assert httpx.post(server.url, json={"queries": []}).json() == {"result": []}


def test_the_module_serves_a_corpus_from_a_file(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(
        '{"id": 7, "contents": "Quokka\\nA small wallaby."}\n\n{"title": "Émeu", "text": "A bird."}\n', "utf-8"
    )
    command = [sys.executable, "-m", "gem_core.tools.search_server", "--corpus", str(corpus), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        url = re.search(r"http://\S+", line)
        assert url, line
        tool = SearchTool(search_url=url[0])
        assert "Doc 1(Title: Quokka) A small wallaby." in tool.execute_action("<search>wallaby</search>")[2]
        assert "Émeu" in tool.execute_action("<search>émeu</search>")[2]
        tool.close()
    finally:
        process.terminate()
        process.wait(10)
        process.stderr.close()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('{"contents": "a"}\nnot json\n', "line 2"),
        ('{"body": "a"}\n', "'contents'"),
        ("\n\n", "no document"),
        (None, "cannot be read"),
    ],
)
def test_a_bad_corpus_names_the_line(tmp_path: Path, text: str | None, word: str) -> None:
    path = tmp_path / "c.jsonl"
    if text is not None:
        path.write_text(text, "utf-8")
    with pytest.raises(ValueError, match=word):
        load_corpus(path)


# -- the indexes ---------------------------------------------------------------------------------------------------


def test_bm25_answers_any_query() -> None:
    index = BM25Index([Document("0", "C\nA language."), Document("1", "the of and"), Document("2", "")])
    for query in ("", "the", "?!", "\x00", "語", "a" * 100_000):
        (hits,) = index.search([query], k=10)
        assert all(score > 0 for _, score in hits)
    assert [d.id for d, _ in index.search(["C"], k=10)[0]] == ["0"]
    assert index.search([], k=3) == []


def letters(texts: list[str]) -> Any:
    """A stand-in for an embedding model: how often each letter occurs."""
    return np.array([[t.lower().count(c) for c in "abcdefghijklmnopqrstuvwxyz"] for t in texts], dtype=float)


def test_dense_vectors_rank_by_cosine() -> None:
    documents = [Document(str(i), t) for i, t in enumerate(["aaab", "zzzz", "abab", ""])]
    index = DenseIndex(documents, letters, batch_size=2)
    (hits,) = index.search(["AB"], k=2)
    assert [d.id for d, _ in hits] == ["2", "0"]
    assert hits[0][1] == pytest.approx(1.0, abs=1e-6)
    with SearchServer(index) as server:
        tool = SearchTool(search_url=server.url, topk=1)
        assert "zzzz" in tool.execute_action("<search>z</search>")[2]
        tool.close()
    with pytest.raises(ValueError, match="shape"):
        DenseIndex(documents, lambda texts: np.zeros(3))
