"""Readers of one stream: each returns when its deltas arrived, measured from when it asked."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import aiohttp

from benchmarks.processes import Stack
from headrace.client import Client

Times: TypeAlias = list[float]
"""Seconds from the question to each delta."""

Reader: TypeAlias = Callable[[], Awaitable[Times]]


class Readers:
    """Ways to the same upstream; `model` names what it plays."""

    def __init__(self, where: Stack, http: aiohttp.ClientSession, client: Client) -> None:
        self._where = where
        self._http = http
        self._client = client

    def by_name(self, way: str, model: str) -> Reader:
        """The reader of a way: direct, relay, grpc or http."""
        if way == "grpc":
            return lambda: self._grpc(model)
        if way == "http":
            body = json.dumps({"agentKey": model, "message": "go"}).encode()
            return lambda: self._sse(f"{self._where.facade}/api/query", body, b'"type":"content.delta"')
        url = self._where.upstream if way == "direct" else self._where.relay
        messages = [{"role": "user", "content": "go"}]
        body = json.dumps({"model": model, "stream": True, "messages": messages}).encode()
        return lambda: self._sse(url, body, b'"content":" ')

    async def _sse(self, url: str, body: bytes, mark: bytes) -> Times:
        times: Times = []
        asked = time.perf_counter()
        async with self._http.post(url, data=body, headers={"Content-Type": "application/json"}) as response:
            response.raise_for_status()
            async for chunk in response.content.iter_any():
                times += [time.perf_counter() - asked] * chunk.count(mark)
        return times

    async def _grpc(self, model: str) -> Times:
        times: Times = []
        asked = time.perf_counter()
        async with self._client.ask("go", agent_key=model) as deltas:
            async for delta in deltas:
                if delta.WhichOneof("payload") == "content_delta":
                    times.append(time.perf_counter() - asked)
        return times


async def together(reader: Reader, streams: int, spread_s: float) -> list[Times]:
    """`streams` readers at once, their starts spread evenly over `spread_s`."""

    async def one(number: int) -> Times:
        await asyncio.sleep(spread_s * number / streams)
        return await reader()

    return await asyncio.gather(*(one(number) for number in range(streams)))
