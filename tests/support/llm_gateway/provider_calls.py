"""One call to a scripted server, read to its end."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from services.llm_gateway.http.client import ProviderRequest, ProviderStream, opening_stream
from services.llm_gateway.http.pool import Pool
from services.llm_gateway.providers.provider_file import Provider
from tests.support.llm_gateway.gateway import provider_entry
from tests.support.llm_gateway.scripted import Answer, Scripted, serving_script

TIMEOUTS = {"connectMs": 30_000, "firstDeltaMs": 5_000, "idleMs": 5_000}


def ask(server: Scripted, body: bytes = b"{}", **timeouts: int) -> ProviderRequest:
    """Make a request to `server`."""
    entry: dict[str, Any] = provider_entry(server.url, timeouts=TIMEOUTS | timeouts)
    return ProviderRequest(Provider.model_validate(entry), "sim-1", f"{server.url}/v1/chat", {}, body)


@asynccontextmanager
async def streaming(answer: Answer, **timeouts: int) -> AsyncGenerator[tuple[Scripted, ProviderStream]]:
    """The answer of a server of its own, to be read."""
    async with (
        Pool() as pool,
        serving_script(answer) as server,
        opening_stream(pool, ask(server, b"{}", **timeouts)) as stream,
    ):
        yield server, stream


async def read(pool: Pool, asked: ProviderRequest) -> bytes:
    """The whole body of the answer."""
    pieces: list[bytes] = []
    async with opening_stream(pool, asked) as stream:
        while await stream.push_body(lambda piece: pieces.append(piece) is None):
            pass
    return b"".join(pieces)
