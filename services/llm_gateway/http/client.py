"""One call to a provider: its status and its silence turned into our errors, its connection always closed in time."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import httptools

from headrace.errors import HeadraceError
from services.llm_gateway.http.errors import connecting_errors, exchange_errors, stalled, unusable
from services.llm_gateway.http.request import post, split
from services.llm_gateway.provider_errors.refusal import read_refusal, to_error

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from services.llm_gateway.http.connection import Connection
    from services.llm_gateway.http.pool import Pool
    from services.llm_gateway.http.request import Origin
    from services.llm_gateway.http.response import Response
    from services.llm_gateway.providers.provider_file import Provider

ERROR_BODY_BYTES_MAX = 64 * 1024
"""What is read of a refusal; what the same read brought beyond it is let in too."""

END_S = 0.1
"""How long the end of a complete answer's body is waited for: a body read to its end leaves a connection to reuse."""

LOOKS = 4
"""In a row that saw nothing come make a stream silent: before one alone this process may have stood still itself, or
been at work on what had come, while more lay in its socket."""

STALE_S = 1.0
"""A kept connection that was closed without a byte this soon after the request was closed before it came."""


@dataclass(slots=True)
class Ask:
    """What is asked of whom."""

    provider: Provider
    model: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    """Let go when the provider answers: it may have megabytes, and answers take minutes."""

    key: str = field(repr=False)
    """Stands in the headers; here to be masked."""


class ProviderStream:
    """The body of a provider's answer as it comes. Belongs to one call."""

    def __init__(self, response: Response, provider: Provider, first_delta_due_s: float) -> None:
        self._response = response
        self._provider = provider
        self._idle_s = provider.timeouts.idle_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._is_flowing = False
        """Not while our own reader takes its time, which is not the provider's."""
        self._looks = 0
        """In a row that saw nothing come."""
        self._heard_s: float | None = None
        """What the last look saw."""
        self._check = self._loop.call_at(first_delta_due_s, self._close_if_late)

    def has_begun(self) -> None:
        """The first reasoning, content or tool call is there: from now on `idleMs` counts, not `firstDeltaMs`."""
        self._check.cancel()
        self._check = self._loop.call_later(self._idle_s / LOOKS, self._look)

    async def flow(self, take: Callable[[bytes], bool]) -> bool:
        """Give `take` what comes, from the socket's callback, until it returns False; False: the body has ended.

        Raises:
            StreamStalled: Nothing came for too long.
            ProviderUnavailable: The connection broke.
            HeadraceError: What `take` raised.
        """
        self._is_flowing, self._looks = True, 0
        try:
            with exchange_errors(self._provider):
                return await self._response.flow(take)
        except HeadraceError as error:
            # Where it was raised, all that was being read is held, for as long as anyone holds the error.
            raise error.with_traceback(None) from None
        finally:
            self._is_flowing = False

    async def end(self) -> None:
        """Take the end of a complete answer, so that its connection can be used again."""
        # The answer is complete: a late or broken end costs the connection and is nobody's error.
        with suppress(OSError, httptools.HttpParserError):
            async with asyncio.timeout(END_S):
                await self._response.flow(lambda _: True)

    def close(self) -> None:
        """Watch no longer."""
        self._check.cancel()

    def _close_if_late(self) -> None:
        if self._is_flowing:
            self._response.fail(stalled(self._provider, has_begun=False))
        else:
            self._check = self._loop.call_later(self._idle_s, self._close_if_late)

    def _look(self) -> None:
        # One timer a stream that looks now and then, instead of one for each delta.
        heard_s = self._response.heard_s
        if not self._is_flowing or heard_s != self._heard_s:
            self._looks, self._heard_s = 0, heard_s
        elif self._looks == LOOKS:
            self._response.fail(stalled(self._provider, has_begun=True))
            return
        self._looks += 1
        self._check = self._loop.call_later(self._idle_s / LOOKS, self._look)


@asynccontextmanager
async def posting(pool: Pool, ask: Ask) -> AsyncGenerator[ProviderStream]:
    """Ask, and read the answer inside the block; leaving it closes the connection, or keeps one that was read to its
    end.

    Raises:
        HeadraceError: The provider cannot be reached, does not answer in time, or refuses.
    """
    provider = ask.provider
    due_s = asyncio.get_running_loop().time() + provider.timeouts.first_delta_ms / 1000
    with exchange_errors(provider):
        async with asyncio.timeout_at(due_s):
            connection, response = await _answered(pool, ask)
    ask.body = b""
    try:
        # Some providers wrap a refusal in a 200; an answer is never plain JSON, since a stream was asked for.
        if response.status != 200 or _media_type(response) == "application/json":
            with exchange_errors(provider):
                async with asyncio.timeout_at(due_s):
                    raise await _refusal(response, ask)
        stream = ProviderStream(response, provider, due_s)
        try:
            yield stream
        finally:
            stream.close()
    finally:
        pool.give_back(connection, is_reusable=response.is_reusable)


async def _answered(pool: Pool, ask: Ask) -> tuple[Connection, Response]:
    """Who answers, and the answer, whose head has been read."""
    loop = asyncio.get_running_loop()
    origin, message = _request(ask)
    if (kept := pool.kept(origin)) is not None:
        sent_s = loop.time()
        response = kept.post(message)
        try:
            return await _headed(kept, response)
        except OSError:
            # A server may close an idle connection in the moment in which we use it. That looks as if it had died over
            # the request, which it may then have billed; so this is done once, on a new connection, only when not one
            # byte came, and only when the end was there at once. The commit rule repeats more than that.
            if response.heard_s is not None or loop.time() - sent_s > STALE_S:
                raise
    with connecting_errors(ask.provider):
        async with asyncio.timeout(ask.provider.timeouts.connect_ms / 1000):
            fresh = await pool.connected(origin)
    return await _headed(fresh, fresh.post(message))


async def _headed(connection: Connection, response: Response) -> tuple[Connection, Response]:
    try:
        await response.head()
    except BaseException:
        connection.close()
        raise
    return connection, response


def _request(ask: Ask) -> tuple[Origin, Sequence[bytes]]:
    try:
        origin, path = split(ask.url)
        return origin, post(origin, path, ask.headers, ask.body)
    except ValueError as error:
        raise unusable(ask.provider, error) from error


def _media_type(response: Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _refusal(response: Response, ask: Ask) -> HeadraceError:
    body = bytearray()

    def take(piece: bytes) -> bool:
        body.extend(piece)
        return len(body) < ERROR_BODY_BYTES_MAX

    await response.flow(take)
    refusal = read_refusal(ask.provider.key, ask.model, response.status, response.headers, bytes(body))
    return to_error(refusal, ask.key)
