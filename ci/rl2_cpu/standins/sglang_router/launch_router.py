"""The stand-in's router: hands each request to the next of its workers."""

from __future__ import annotations

import itertools
import json
import os
import sys
from dataclasses import asdict, dataclass, field

import aiohttp
from aiohttp import web


@dataclass
class RouterArgs:
    worker_urls: list[str] = field(default_factory=list)
    host: str = "127.0.0.1"
    port: int = 30001
    log_level: str = "info"


def launch_router(args: RouterArgs) -> None:
    """Never returns; see ``launch_server``."""
    os.execv(sys.executable, [sys.executable, "-m", "sglang_router.launch_router", json.dumps(asdict(args))])


async def app(args: RouterArgs) -> web.Application:
    workers = list(args.worker_urls)
    turn = itertools.count()
    timeout = aiohttp.ClientTimeout(total=None)
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout)

    async def health(request: web.Request) -> web.Response:
        return web.Response(text="OK")

    async def add_worker(request: web.Request) -> web.Response:
        workers.append(request.query["url"])
        return web.Response(text=f"Successfully added worker: {request.query['url']}")

    async def forward(request: web.Request) -> web.Response:
        if not workers:
            return web.json_response({"error": "no workers"}, status=503)
        url = workers[next(turn) % len(workers)]
        async with session.post(url + request.path, data=await request.read(), headers=_JSON) as answer:
            return web.Response(body=await answer.read(), status=answer.status, content_type="application/json")

    async def close(_: web.Application) -> None:
        await session.close()

    made = web.Application(client_max_size=1 << 30)
    made.router.add_get("/health", health)
    made.router.add_post("/add_worker", add_worker)
    made.router.add_post("/generate", forward)
    made.on_cleanup.append(close)
    return made


_JSON = {"Content-Type": "application/json"}


if __name__ == "__main__":
    given = RouterArgs(**json.loads(sys.argv[1]))
    web.run_app(app(given), host=given.host, port=given.port, print=None, access_log=None)
