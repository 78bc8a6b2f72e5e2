"""One request to a provider, with our errors for status, silence, and failures of sockets and parser."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import httptools

from headrace.errors import HeadraceError, ProviderUnavailable, StreamStalled
from services.llm_gateway.http.connection import Connection, Response
from services.llm_gateway.http.pool import Pool
from services.llm_gateway.http.request import Origin, encode_post, split_url
from services.llm_gateway.provider_errors.refusal import (
    NEVER_STREAMS,
    find_address,
    find_coding,
    find_media_type,
    make_error,
    make_packed_error,
    read_refusal,
    unpack_body,
)
from services.llm_gateway.providers.provider_file import Provider
from services.llm_gateway.providers.route import DIRECT, Route

ERROR_BODY_BYTES_MAX = 64 * 1024

FINISH_S = 2.0
"""Longest wait for usage and the end after the finish reason."""

END_S = 0.1
"""Longest wait for a complete answer's end."""

SILENT_CHECKS = 4
"""Silent checks in a row that mean a stall; a single one may mean that this process stood still."""

STALE_S = 1.0
"""A pooled connection that ends within this time was closed before the request."""


@dataclass(slots=True)
class ProviderRequest:
    provider: Provider
    model: str
    url: str = field(repr=False)
    """Address with its query, which may contain a secret."""

    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    """The body to send, released when the provider answers."""

    secrets: Sequence[str] = field(default=(), repr=False)
    """Texts to mask in errors."""

    route: Route = DIRECT


class ProviderStream:
    def __init__(self, response: Response, provider: Provider, first_delta_due_s: float) -> None:
        self._response = response
        self._provider = provider
        self._idle_s = provider.timeouts.idle_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._is_flowing = False
        """False while our own reader is busy, so that its time does not count as the provider's silence."""
        self._silent_checks = 0
        self.is_due = False
        """Whether an answer with its finish reason has waited long enough for its end."""
        self._last_read_s: float | None = None
        self._check = self._loop.call_at(first_delta_due_s, self._close_if_late)

    def start_idle_watch(self) -> None:
        """Apply `idleMs` instead of `firstDeltaMs`, after the first delta."""
        self._check.cancel()
        self._check = self._loop.call_later(self._idle_s / SILENT_CHECKS, self._check_silence)

    async def push_body(self, take: Callable[[bytes], bool]) -> bool:
        """Push the body like Response.push_body.

        Raises:
            StreamStalled: No data arrived for too long.
            ProviderUnavailable: The connection broke.
        """
        self._is_flowing, self._silent_checks = True, 0
        # The traceback's frames would keep the data being read, for as long as the error lives.
        try:
            return await self._response.push_body(take)
        except HeadraceError as error:
            raise error.with_traceback(None) from None
        except EXCHANGE_FAILURES as error:
            raise translate_exchange_error(self._provider, error) from None
        finally:
            self._is_flowing = False

    async def read_end(self) -> None:
        """Read the end of a complete answer, so that its connection can be reused."""
        # The answer is complete: a late or broken end costs only the connection and is not an error.
        try:
            async with asyncio.timeout(END_S):
                await self._response.push_body(lambda _: True)
        except (OSError, httptools.HttpParserError):
            return

    def await_end(self) -> None:
        """End the answer soon, with `is_due`: the model has sent its finish reason, and the end of the body may never
        arrive."""
        self._check.cancel()
        self._check = self._loop.call_later(FINISH_S, self._end)

    def stop_watching(self) -> None:
        self._check.cancel()

    def _end(self) -> None:
        self.is_due = True
        self._response.stop()

    def _close_if_late(self) -> None:
        if self._is_flowing:
            self._response.fail(make_stalled(self._provider, has_begun=False))
        else:
            self._check = self._loop.call_later(self._idle_s, self._close_if_late)

    def _check_silence(self) -> None:
        # One timer per stream that checks now and then is cheaper than one per delta.
        heard_s = self._response.last_read_s
        if not self._is_flowing or heard_s != self._last_read_s:
            self._silent_checks, self._last_read_s = 0, heard_s
        elif self._silent_checks == SILENT_CHECKS:
            self._response.fail(make_stalled(self._provider, has_begun=True))
            return
        self._silent_checks += 1
        self._check = self._loop.call_later(self._idle_s / SILENT_CHECKS, self._check_silence)


class opening_stream:
    """Send a request and read its answer inside the block; at the end, the connection is closed or returned to the
    pool.

    Without `is_stream`, a JSON document with status 200 is an answer and not a refusal.

    Raises:
        HeadraceError: The provider is unreachable, too slow, or refuses.
    """

    __slots__ = ("_connection", "_is_stream", "_pool", "_request", "_response", "_stream")

    def __init__(self, pool: Pool, request: ProviderRequest, *, is_stream: bool = True) -> None:
        self._pool, self._request, self._is_stream = pool, request, is_stream

    async def __aenter__(self) -> ProviderStream:
        request, provider = self._request, self._request.provider
        due_s = asyncio.get_running_loop().time() + provider.timeouts.first_delta_ms / 1000
        try:
            async with asyncio.timeout_at(due_s):
                self._connection, response = await _send_request(self._pool, request)
                self._response, request.body = response, b""
                try:
                    if response.status == 200 and (coding := find_coding(response.headers)):
                        raise make_packed_error(provider.key, request.model, coding)
                    if response.status != 200 or (
                        self._is_stream and find_media_type(response.headers) in NEVER_STREAMS
                    ):
                        raise await _read_refusal_body(response, request)
                except BaseException:
                    self._give_back()
                    raise
        except EXCHANGE_FAILURES as error:
            raise translate_exchange_error(provider, error, find_address(request.url)) from error
        self._stream = ProviderStream(response, provider, due_s)
        return self._stream

    async def __aexit__(self, *_: object) -> None:
        self._stream.stop_watching()
        self._give_back()

    def _give_back(self) -> None:
        self._pool.give_back(self._connection, is_reusable=self._response.is_reusable)


async def _send_request(pool: Pool, request: ProviderRequest) -> tuple[Connection, Response]:
    loop = asyncio.get_running_loop()
    try:
        origin, path = split_url(request.url, request.route)
        message = encode_post(origin, path, request.headers, request.body)
    except ValueError as error:
        raise _make_unavailable(request.provider, f"cannot be asked: {error}") from error
    if (pooled := pool.take_idle(origin)) is not None:
        sent_s = loop.time()
        response = pooled.send_request(message)
        try:
            return await _read_head(pooled, response)
        except OSError:
            # A server may close an idle connection in the moment in which we use it. That looks as if the request,
            # which may then be billed, had killed the connection; so the request is repeated once, on a new connection,
            # only if not a single byte arrived, and only if the connection ended at once. The commit rule permits
            # further repeats.
            if response.last_read_s is not None or loop.time() - sent_s > STALE_S:
                raise
    with translating_connect_errors(request.provider, origin):
        async with asyncio.timeout(request.provider.timeouts.connect_ms / 1000):
            fresh = await pool.open_connection(origin)
    return await _read_head(fresh, fresh.send_request(message))


async def _read_head(connection: Connection, response: Response) -> tuple[Connection, Response]:
    try:
        await response.read_head()
    except BaseException:
        connection.close()
        raise
    return connection, response


async def _read_refusal_body(response: Response, request: ProviderRequest) -> HeadraceError:
    body = bytearray()

    def take(piece: bytes) -> bool:
        body.extend(piece)
        return len(body) < ERROR_BODY_BYTES_MAX

    await response.push_body(take)
    unpacked = unpack_body(response.headers, bytes(body), ERROR_BODY_BYTES_MAX)
    refusal = read_refusal(
        request.provider.key, request.model, response.status, response.headers, unpacked, request.url
    )
    return make_error(refusal, *request.secrets)


@contextmanager
def translating_connect_errors(provider: Provider, origin: Origin) -> Generator[None]:
    proxy, place = origin.route.proxy, f"at http{'s' if origin.is_tls else ''}://{origin.authority}"
    through = "" if proxy is None else f" through the proxy {proxy.authority}"
    try:
        yield
    except TimeoutError as error:
        limit_ms = provider.timeouts.connect_ms
        raise _make_unavailable(
            provider, f"{place} did not accept a connection{through} within {limit_ms} ms"
        ) from error
    except OSError as error:
        cause = error.strerror or str(error) or type(error).__name__
        if isinstance(error, ssl.SSLCertVerificationError):
            cause = f"its certificate was refused, {getattr(error, 'verify_message', '')}"
        raise _make_unavailable(provider, f"{place} cannot be reached{through}: {cause}") from error


EXCHANGE_FAILURES = (OSError, httptools.HttpParserError, httptools.HttpParserUpgrade)
"""Errors of sending a request and reading its response."""


def translate_exchange_error(provider: Provider, error: BaseException, address: str = "") -> HeadraceError:
    """Return our error for one of EXCHANGE_FAILURES; `address` is set if nothing has come from there yet.

    A TimeoutError with errno is the system's; without one, it is the first delta's timeout.
    """
    if isinstance(error, TimeoutError) and error.errno is None:
        return make_stalled(provider, has_begun=False)
    what = "broke the connection off" if isinstance(error, OSError) else "does not answer in HTTP/1.1"
    return _make_unavailable(provider, f"at {address} (check its baseUrl) {what}" if address else what)


def make_stalled(provider: Provider, *, has_begun: bool) -> StreamStalled:
    timeouts = provider.timeouts
    limit_ms = timeouts.idle_ms if has_begun else timeouts.first_delta_ms
    what = "fell silent" if has_begun else "sent no first delta"
    return StreamStalled(
        f"provider {provider.key!r} {what} within {limit_ms} ms", provider=provider.key, limitMs=limit_ms
    )


def _make_unavailable(provider: Provider, what: str) -> ProviderUnavailable:
    return ProviderUnavailable(f"provider {provider.key!r} {what}", provider=provider.key)
