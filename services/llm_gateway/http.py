"""HTTP to providers: one POST, its status and its silence turned into our errors, its socket always closed in time."""

from __future__ import annotations

import asyncio
import io
import math
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING

import aiohttp

from headrace.errors import ProviderUnavailable, StreamStalled
from services.llm_gateway.failures import read_refusal, to_error

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Mapping

    from services.llm_gateway.provider_file import Provider

READ_BUFFER_BYTES = 64 * 1024
"""Of one provider's stream; at twice that the socket is not read until our own reader has caught up."""

ERROR_BODY_BYTES_MAX = 64 * 1024
"""What is read of a refusal."""

IDLE_CONNECTION_S = 30.0
"""A provider's idle connections are kept that long; they save a TLS handshake before the first delta."""

END_S = 0.1
"""How long the end of a complete answer's body is waited for: a body read to its end leaves a connection to reuse."""


def provider_session() -> aiohttp.ClientSession:
    """The session for all providers; made on the loop that uses it, closed by the caller."""
    # Streams are limited by the server; a second limit here would be a queue without a name.
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_CONNECTION_S)
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=READ_BUFFER_BYTES,
        # A compressed stream is held back by whoever compresses it.
        headers={"Accept-Encoding": "identity", "Accept": "text/event-stream"},
    )


class ProviderStream:
    """The body of a provider's answer as it comes. Belongs to one call."""

    def __init__(self, response: aiohttp.ClientResponse, provider: Provider, first_delta_due_s: float) -> None:
        self._response = response
        self._content = response.content
        self._provider = provider
        self._idle_s = provider.timeouts.idle_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._first_delta_due_s: float | None = first_delta_due_s
        self._due_s = math.inf
        self._is_stalled = False
        self._check = self._loop.call_at(first_delta_due_s, self._close_if_silent)

    def has_begun(self) -> None:
        """The first reasoning, content or tool call is there: from now on `idleMs` counts, not `firstDeltaMs`."""
        self._first_delta_due_s = None
        self._check.cancel()
        self._check = self._loop.call_later(self._idle_s, self._close_if_silent)

    async def read(self) -> bytes:
        """What has come, at least one byte; empty at the end.

        Raises:
            StreamStalled: Nothing came for too long.
            ProviderUnavailable: The connection broke.
        """
        # The silence is watched only in here: the time that our own reader takes is not the provider's.
        self._due_s = self._first_delta_due_s or self._loop.time() + self._idle_s
        try:
            return await self._content.readany()
        except aiohttp.ClientError as error:
            if self._is_stalled:
                raise _stalled(self._provider, has_begun=self._first_delta_due_s is None) from error
            raise _broken(self._provider) from error
        finally:
            self._due_s = math.inf

    async def end(self) -> None:
        """Take the end of a complete answer, so that its connection can be used again."""
        # The answer is complete: a late or broken end costs the connection and is nobody's error.
        with suppress(TimeoutError, aiohttp.ClientError):
            async with asyncio.timeout(END_S):
                await self._content.readany()

    def close(self) -> None:
        """Close the connection, or give it back when the body was read to its end."""
        self._check.cancel()
        if self._content.at_eof():
            self._response.release()
        else:
            self._response.close()

    def _close_if_silent(self) -> None:
        # One timer a stream that looks now and then, instead of one for each delta.
        now_s = self._loop.time()
        if now_s >= self._due_s:
            self._is_stalled = True
            self._response.close()
            return
        self._check = self._loop.call_at(min(self._due_s, now_s + self._idle_s), self._close_if_silent)


@asynccontextmanager
async def posting(
    session: aiohttp.ClientSession,
    provider: Provider,
    model: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    key: str,
) -> AsyncGenerator[ProviderStream]:
    """POST `body` and read the answer inside the block; leaving it closes the connection. `key` is only masked.

    Raises:
        HeadraceError: The provider cannot be reached, does not answer in time, or refuses.
    """
    timeouts = provider.timeouts
    limits = aiohttp.ClientTimeout(total=None, connect=timeouts.connect_ms / 1000)
    due_s = asyncio.get_running_loop().time() + timeouts.first_delta_ms / 1000
    with provider_errors(provider):
        async with asyncio.timeout_at(due_s):
            response = await session.post(
                url,
                # Bytes would be written in one piece, with a warning above a mebibyte; a file is written in chunks.
                data=io.BytesIO(body),
                headers={"Content-Type": "application/json", **headers},
                timeout=limits,
                allow_redirects=False,
            )
            # Some providers wrap a refusal in a 200; an answer is never plain JSON, since a stream was asked for.
            if response.status != 200 or response.content_type == "application/json":
                await _refuse(response, provider, model, key)
    stream = ProviderStream(response, provider, due_s)
    try:
        yield stream
    finally:
        stream.close()


async def _refuse(response: aiohttp.ClientResponse, provider: Provider, model: str, key: str) -> None:
    body = b""
    try:
        while len(body) < ERROR_BODY_BYTES_MAX and (chunk := await response.content.readany()):
            body += chunk
    finally:
        response.close()
    raise to_error(read_refusal(provider.key, model, response.status, response.headers, body), key)


@contextmanager
def provider_errors(provider: Provider) -> Generator[None]:
    """Everything that aiohttp can raise is named here; a test walks its exceptions."""
    try:
        yield
    except aiohttp.ConnectionTimeoutError as error:
        limit_ms = provider.timeouts.connect_ms
        raise _unavailable(provider, f"did not accept a connection within {limit_ms} ms") from error
    except aiohttp.ClientConnectorError as error:
        raise _unavailable(provider, "cannot be reached") from error
    except TimeoutError as error:
        raise _stalled(provider, has_begun=False) from error
    except aiohttp.ClientError as error:
        raise _broken(provider) from error


def _unavailable(provider: Provider, what: str) -> ProviderUnavailable:
    return ProviderUnavailable(f"provider {provider.key!r} {what}", provider=provider.key)


def _broken(provider: Provider) -> ProviderUnavailable:
    return _unavailable(provider, "broke the connection off")


def _stalled(provider: Provider, *, has_begun: bool) -> StreamStalled:
    timeouts = provider.timeouts
    limit_ms = timeouts.idle_ms if has_begun else timeouts.first_delta_ms
    what = "fell silent" if has_begun else "sent no first delta"
    return StreamStalled(
        f"provider {provider.key!r} {what} within {limit_ms} ms", provider=provider.key, limitMs=limit_ms
    )
