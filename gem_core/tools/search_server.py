"""A retrieval server for :class:`~gem_core.tools.search_tool.SearchTool` that needs no network and no GPU.

``python -m gem_core.tools.search_server --corpus FILE.jsonl --port 8000`` ranks by BM25; ``--embed module:function``
ranks by dense vectors instead. ``POST /retrieve`` takes ``{"queries": [...], "topk": 3, "return_scores": true}``
(Search-R1) or ``{"query": "...", ...}`` (GEM), as JSON or MessagePack, and answers in the same form.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from gem_core.tools.search_index import BM25Index, DenseIndex, Hits, Index, load_corpus

logger = logging.getLogger("gem_core.tools.search_server")  # __name__ is "__main__" under -m

_MAX_BODY = 8 * 1024 * 1024
_MAX_TOPK = 1000


class SearchServer:
    """Serves an index over HTTP, one thread a connection.

    Args:
        index: What ranks the documents.
        host: Address to listen on.
        port: Port; 0 takes a free one, see :attr:`url`.
        topk: Passages where the request does not say.
    """

    def __init__(self, index: Index, host: str = "127.0.0.1", port: int = 0, topk: int = 3) -> None:
        self.index = index
        self.topk = topk
        self._http = _Server((host, port), _handler(self))
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The address for ``SearchTool(search_url=...)``."""
        host, port = self._http.server_address[:2]
        return f"http://{host if isinstance(host, str) else host.decode()}:{port}/retrieve"

    def start(self) -> SearchServer:
        """Serves from a thread of its own until :meth:`close`."""
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(0.1,), name="gem-search-server", daemon=True
        )
        self._thread.start()
        return self

    def serve_forever(self) -> None:
        self._http.serve_forever()

    def close(self) -> None:
        if self._thread is not None:
            self._http.shutdown()
            self._thread.join()
            self._thread = None
        self._http.server_close()

    def __enter__(self) -> SearchServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def answer(self, request: Any) -> dict[str, Any]:
        """The response to a decoded request.

        Raises:
            ValueError: the request is not of the form in the module's docstring.
        """
        if not isinstance(request, dict):
            raise ValueError("the body must be an object")
        many = request.get("queries")
        queries = many if many is not None else [request.get("query")]
        if not isinstance(queries, list) or not all(isinstance(q, str) for q in queries):
            raise ValueError("'queries' must be a list of strings, or 'query' a string")
        topk = request.get("topk") or self.topk
        if isinstance(topk, bool) or not isinstance(topk, int) or not 1 <= topk <= _MAX_TOPK:
            raise ValueError(f"'topk' must be an integer from 1 to {_MAX_TOPK}, got {topk!r}")
        scores = bool(request.get("return_scores", False))
        rows = [_row(hits, scores) for hits in self.index.search(queries, topk)]
        return {"result": rows if many is not None else rows[0]}


def _row(hits: Hits, scores: bool) -> list[dict[str, Any]]:
    return [{"document": {"id": d.id, "contents": d.contents}, "score": score if scores else None} for d, score in hits]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    allow_reuse_address = True


def _handler(owner: SearchServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60  # seconds a kept-alive connection may be idle
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            if self.path in ("/health", "/"):
                self._send(200, json.dumps({"status": "ok"}).encode(), "application/json")
            else:
                self._refuse(404, f"no such path: {self.path}; POST /retrieve")

        def do_POST(self) -> None:
            if self.path.split("?")[0].rstrip("/") not in ("/retrieve", ""):
                self.close_connection = True  # the body stays unread
                self._refuse(404, f"no such path: {self.path}; POST /retrieve")
                return
            try:
                length = int(self.headers.get("Content-Length", ""))
            except ValueError:
                length = -1
            if not 0 <= length <= _MAX_BODY:
                self.close_connection = True
                self._refuse(413, f"Content-Length must be given, at most {_MAX_BODY} bytes")
                return
            try:
                request, msgpack = _decode(self.rfile.read(length))
                response = owner.answer(request)
            except (ValueError, ImportError) as e:
                self._refuse(400, str(e))
            except Exception as e:
                logger.exception("search failed")
                self._refuse(500, f"{type(e).__name__}: {e}")
            else:
                if msgpack is None:
                    self._send(200, json.dumps(response, ensure_ascii=False).encode(), "application/json")
                else:
                    self._send(200, msgpack.encode(response), "application/msgpack")

        def _refuse(self, status: int, reason: str) -> None:
            self._send(status, json.dumps({"error": reason}).encode(), "application/json")

        def _send(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            logger.debug("%s %s", self.address_string(), format % args)

    return Handler


def _decode(body: bytes) -> tuple[Any, Any]:
    """The request, and the MessagePack codec where it came in that form."""
    if body.lstrip()[:1] in (b"{", b"["):
        return json.loads(body), None
    try:
        import msgspec
    except ModuleNotFoundError as e:
        raise ImportError(
            "MessagePack requests need the package 'msgspec': pip install 'gem-adapters[search]'", name=e.name
        ) from e
    try:
        return msgspec.msgpack.decode(body), msgspec.msgpack
    except msgspec.DecodeError as e:
        raise ValueError(f"the body is neither JSON nor MessagePack: {e}") from None


def _load_embed(name: str) -> Any:
    module, found, attribute = name.partition(":")
    if not found:
        raise ValueError(f"--embed takes module:function, got {name!r}")
    value: Any = importlib.import_module(module)
    for part in attribute.split("."):
        value = getattr(value, part)
    return value


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m gem_core.tools.search_server", description=__doc__)
    parser.add_argument("--corpus", help="JSONL file; the small sample of the package where left out")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    parser.add_argument("--topk", type=int, default=3, help="passages where the request does not say")
    parser.add_argument("--embed", help="module:function that maps a list of texts to vectors; ranks by them")
    args = parser.parse_args(argv)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        documents = load_corpus(args.corpus)
        index: Index = DenseIndex(documents, _load_embed(args.embed)) if args.embed else BM25Index(documents)
    except (ValueError, ImportError, AttributeError) as e:
        parser.error(str(e))
    server = SearchServer(index, args.host, args.port, args.topk)
    logger.info("serving %d documents at %s", len(documents), server.url)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.close()


if __name__ == "__main__":
    main()
