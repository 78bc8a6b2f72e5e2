"""One request to both facades, and their answers in comparable form."""

import asyncio
import io
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from yarl import URL

from headrace.sse import SseReader
from tests.support.facade.fronts import DEFAULTS, FRONTS, PEERS, Timing
from tests.support.facade.peers import Peer, serving_peer

INCOMPARABLE = {"date", "server", "x-request-id", "connection", "transfer-encoding", "keep-alive"}
"""Headers that are not the contract's."""

IN_OWN_WORDS = {"INVALID_REQUEST", "INTERNAL"}
"""Codes that each facade gives by itself, with a message and details of its own."""


@dataclass(frozen=True)
class Answer:
    """One facade's answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[bytes]:
        """The data of each frame."""
        reader = SseReader()
        return [frame.data for frame in [*reader.feed(self.body), *reader.finish()]]

    @property
    def comparable(self) -> tuple[int, dict[str, str], Any]:
        """What both say alike."""
        headers = {name: value for name, value in self.headers.items() if name not in INCOMPARABLE}
        if not headers.get("content-type", "").startswith("application/json") or not self.body:
            return self.status, headers, self.body
        body = json.loads(self.body, parse_float=str, parse_int=str)
        if isinstance(body, dict) and body.get("error", {}).get("code") in IN_OWN_WORDS:
            del headers["content-length"], body["msg"], body["error"]["details"]
        return self.status, headers, body


@dataclass(frozen=True)
class Both:
    """Two facades in front of one peer."""

    peer: Peer
    grpc: str
    sessions: Mapping[str, aiohttp.ClientSession]

    async def ask(self, verb: str, path: str, body: bytes | None = None, headers: Any = ()) -> Answer:
        """Send a request to both facades, assert that their answers are equal, and return one."""
        embedded, gateway = [await self.one(http, verb, path, body, headers) for http in self.sessions.values()]
        assert gateway.comparable == embedded.comparable
        return gateway

    async def one(self, http: aiohttp.ClientSession, verb: str, path: str, body: bytes | None, headers: Any) -> Answer:
        url = URL(str(http._base_url).rstrip("/") + path, encoded=True)  # pyright: ignore[reportPrivateUsage] - it has no other name
        data = io.BytesIO(body) if body is not None else None
        if body is not None and "Content-Type" not in dict(headers):
            headers = [*headers, ("Content-Type", "application/json")]
        async with http.request(verb, url, data=data, headers=headers, skip_auto_headers=["Content-Type"]) as response:
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, headers, await response.read())


@asynccontextmanager
async def both(folder: Path, peer: Peer, timing: Timing = DEFAULTS) -> AsyncGenerator[Both]:
    """Run both facades inside the block, for at most 300 s."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(300))
        address = await stack.enter_async_context(serving_peer(folder, peer))
        sessions = dict[str, aiohttp.ClientSession]()
        for name, front in FRONTS.items():
            url = await stack.enter_async_context(front(dict.fromkeys(PEERS, address), timing))
            sessions[name] = await stack.enter_async_context(aiohttp.ClientSession(url, auto_decompress=False))
        yield Both(peer, address, sessions)
