"""A real S3 server for tests, and a proxy in front of it that fails as stores and networks do.

The server is moto's (tests/clients/python/s3_server.py), which refuses wrong signatures; without its environment the
tests are skipped with a notice.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from services.memory.storage.engine import Engine
from services.memory.storage.s3.bucket import Bucket, open_bucket
from services.memory.storage.s3.engine import keeping_blobs_in
from services.memory.storage.s3.requests import Limits
from services.memory.storage.s3.settings import S3Settings
from services.runtime.randomness import new_hex
from tests.support.clients.catalogue import ENVIRONMENTS, ROOT

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

PYTHON = ENVIRONMENTS / "moto" / "bin" / "python"
PROGRAM = ROOT / "tests/clients/python/s3_server.py"

needs_s3 = pytest.mark.skipif(
    not PYTHON.exists(), reason="NOTICE: `make build/clients/moto/done` was not run: blobs are NOT tried in a bucket"
)

QUICK = Limits(patience_s=2.0, connect_s=0.5, silence_s=0.5, attempts_max=3, rest_s=0.3)
"""For tests of failures."""


@dataclass(frozen=True, slots=True)
class Place:
    """A separate prefix of a bucket."""

    settings: S3Settings
    url: str = field(default_factory=lambda: f"s3://chats/{new_hex(8)}")
    limits: Limits = Limits()

    def at(self, endpoint_url: str, limits: Limits = QUICK) -> Place:
        """Return the same place, reached through a proxy."""
        return replace(self, settings=replace(self.settings, endpoint_url=endpoint_url), limits=limits)

    def keeping_blobs(self, engine: Engine) -> AbstractAsyncContextManager[Engine]:
        return keeping_blobs_in(self.url, self.settings, engine, self.limits)

    def open(self) -> AbstractAsyncContextManager[Bucket]:
        return open_bucket(self.url, self.settings, self.limits)

    async def read_all(self) -> dict[str, bytes]:
        """Return all objects by their keys."""
        async with self.open() as bucket:
            found = {entry.key: await bucket.get(entry.key) async for entry in bucket.list("")}
        return {key: stored[0] for key, stored in found.items() if stored is not None}

    @property
    def variables(self) -> dict[str, str]:
        """What a service is told."""
        return {
            "HEADRACE_MEMORY_BLOBS": self.url,
            "AWS_ENDPOINT_URL": self.settings.endpoint_url,
            "AWS_ACCESS_KEY_ID": self.settings.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.settings.secret_access_key,
        }


@contextmanager
def running_store() -> Generator[S3Settings]:
    """Run a server and yield the settings to reach its bucket `chats`."""
    with subprocess.Popen(
        [PYTHON, PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        try:
            yield S3Settings(endpoint_url=ready["url"], access_key_id=ready["key"], secret_access_key=ready["secret"])
        finally:
            process.kill()


@dataclass(slots=True)
class Proxy:
    """A proxy in front of a store, which fails as `mode` says."""

    target: str
    url: str = ""
    sts: Handler | None = None
    """Answers POST requests, which request temporary keys."""
    mode: str = "pass"
    """pass, slow_down (503), hang (no answer), hang_up (the connection is closed) or cut (in the middle of a body)."""
    times: int = -1
    """Requests that get the mode, then they pass; -1: all."""
    only: str = ""
    """Method of the requests that get the mode; empty: all."""
    seen: Counter[str] = field(default_factory=Counter[str])
    """Requests by their methods."""
    open: int = 0
    most_open: int = 0
    """Requests at a time."""

    def fail(self, mode: str, times: int = -1, only: str = "") -> None:
        self.mode, self.times, self.only = mode, times, only

    def mend(self) -> None:
        self.mode = "pass"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if self.sts is not None and request.method == "POST":
            return await self.sts(request)
        self.seen[request.method] += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            return await self._answer(request)
        finally:
            self.open -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        mode = self._take_mode(request.method)
        if mode == "slow_down":
            return web.Response(status=503, text="<Error><Code>SlowDown</Code></Error>")
        if mode == "hang":
            await asyncio.sleep(60)
        if mode == "hang_up":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        body = await request.read()
        url = URL(self.target + request.raw_path, encoded=True)
        async with (
            aiohttp.ClientSession(auto_decompress=False, skip_auto_headers=("Content-Type",)) as http,
            http.request(request.method, url, data=body, headers=request.headers) as answer,
        ):
            content = await answer.read()
            headers = {k: v for k, v in answer.headers.items() if k.lower() not in ("transfer-encoding", "connection")}
            if mode != "cut" or len(content) < 2:
                return web.Response(status=answer.status, headers=headers, body=content)
        headers["Content-Length"] = str(len(content))
        response = web.StreamResponse(status=answer.status, headers=headers)
        await response.prepare(request)
        await response.write(content[: len(content) // 2])
        assert request.transport is not None
        request.transport.close()
        return response

    def _take_mode(self, method: str) -> str:
        if self.mode == "pass" or self.only not in ("", method) or self.times == 0:
            return "pass"
        self.times -= 1
        return self.mode


@asynccontextmanager
async def proxying(target: str) -> AsyncGenerator[Proxy]:
    proxy = Proxy(target)
    app = web.Application(client_max_size=1 << 28)
    app.router.add_route("*", "/{path:.*}", proxy.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        proxy.url = "http://{}:{}".format(*runner.addresses[0][:2])
        yield proxy
    finally:
        await runner.cleanup()
