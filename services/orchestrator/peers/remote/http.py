"""HTTP to remote agents: credentials, limits, and error mapping."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import structlog

from headrace.errors import (
    HeadraceError,
    RemoteAuthentication,
    RemoteBadAnswer,
    RemoteFailed,
    RemoteNotAllowed,
    RemoteUnavailable,
)
from services.orchestrator.agents.definition.sections import Remote
from services.runtime.files.named_secrets import SECRET_PLACES, read_secret
from services.runtime.net.allow_list import AllowList
from services.runtime.net.pinned_connection import pinned_session, read_bounded_body
from services.runtime.net.targets import (
    HTTPS_PORTS,
    Resolve,
    TargetRefused,
    checked_addresses,
    parse_https_target,
    resolve_name,
)

log = structlog.get_logger()


TASK_NOT_FOUND, UNSUPPORTED, AUTH_REQUIRED = "TASK_NOT_FOUND", "UNSUPPORTED_OPERATION", "UNAUTHENTICATED"

WORDS_CHARS_MAX = 300
"""Maximum characters of a remote agent's error text, which leaves room for ours in the error."""


class Lost(Exception):
    """The connection ended or stayed silent, so the request may have been carried out."""


class Refused(Exception):
    """The remote agent returned a protocol error."""

    def __init__(self, reason: str, words: str) -> None:
        super().__init__(f"{reason}: {words}")
        self.reason = reason
        self.words = words

    def to_error(self, host: str) -> HeadraceError:
        reason = f"{self.reason}: {shorten(self.words)}" if self.words else self.reason
        return RemoteFailed(f"the remote agent at {host} refused the request: {reason}", remote=host)


def shorten(words: str, chars_max: int = WORDS_CHARS_MAX) -> str:
    """Return external text on one line, cut to the length that an error allows."""
    line = " ".join(words.split())
    return line if len(line) <= chars_max else f"{line[: chars_max - 1]}…"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Looks up secrets at each request, so that a rotated file takes effect immediately."""

    env: Mapping[str, str] = field(repr=False, default_factory=dict[str, str])

    def make_headers(self, remote: Remote) -> dict[str, str]:
        """Return the request's headers. Raises RemoteAuthentication if a secret is not set."""
        headers = {name: self._look_up(name, value) for name, value in remote.headers.items()}
        if remote.token is not None:
            headers["Authorization"] = f"Bearer {self._look_up('token', remote.token)}"
        return headers

    def _look_up(self, name: str, value: str) -> str:
        if not value.startswith(SECRET_PLACES):
            return value
        secret = read_secret(value, self.env)
        if secret and secret.isascii() and secret.isprintable():
            return secret
        problem = "is not set" if not secret else "has characters that no header has"
        raise RemoteAuthentication(f"remote.{name}: {value} {problem} in the orchestrator's environment")


REDIRECTS = range(300, 400)
NOT_CARRIED_OUT = frozenset({429, 503})
"""Statuses after which a request may be sent again."""

UNKNOWN = frozenset({500, 502, 504})
"""Statuses of an intermediary, or of a crash: the request may have been carried out."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = None
    accept: str = "application/json"


@dataclass(frozen=True, slots=True)
class Http:
    """HTTP requests without cookies, connections or DNS results kept between them."""

    allow: AllowList = AllowList()
    resolve: Resolve = resolve_name
    ports: frozenset[int] = HTTPS_PORTS
    tls: ssl.SSLContext | None = None
    """Trusted authorities; None: those of the machine."""

    @asynccontextmanager
    async def open(self, request: Request, timeout_s: float) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Send a request and yield its response, whatever its status; `timeout_s` limits the time to its headers.

        Raises:
            RemoteUnavailable: The request was not sent.
            RemoteNotAllowed: The target is not allowed.
            Lost: The request may have been carried out.
        """
        async with _translating(request.url):
            async with asyncio.timeout(timeout_s):
                target = parse_https_target(request.url, self.allow, self.ports)
                addresses = await checked_addresses(target, self.resolve, self.allow)
            async with pinned_session(addresses) as session:
                async with asyncio.timeout(timeout_s):
                    response = await session.request(
                        request.method,
                        target.url,
                        data=request.body,
                        headers={"Accept": request.accept, "Accept-Encoding": "identity", **request.headers},
                        allow_redirects=False,
                        ssl=self.tls or True,
                    )
                try:
                    yield response
                finally:
                    response.close()

    async def fetch(self, request: Request, timeout_s: float, bytes_max: int) -> tuple[int, bytes]:
        """Return a response's status and body. Raises the errors of `open`, and RemoteBadAnswer."""
        async with self.open(request, timeout_s) as response:
            check_status(response, request.url)
            return response.status, await read_body(response, request.url, timeout_s, bytes_max)


async def read_body(response: aiohttp.ClientResponse, url: str, timeout_s: float, bytes_max: int) -> bytes:
    check_encoding(response, url)
    try:
        async with asyncio.timeout(timeout_s):
            return await read_bounded_body(response, bytes_max)
    except ValueError as error:
        raise RemoteBadAnswer(f"the answer of {name_host(url)} is {error}", remote=name_host(url)) from None


def check_status(response: aiohttp.ClientResponse, url: str) -> None:
    """Raise for responses that are not part of the agent's protocol."""
    host, status = name_host(url), response.status
    if status in REDIRECTS:
        raise RemoteNotAllowed(f"{host} sends the request elsewhere; redirects are not followed", remote=host)
    if status in (401, 403):
        raise RemoteAuthentication(f"{host} refuses our credential ({status})", remote=host, status=status)
    if status in NOT_CARRIED_OUT:
        raise RemoteUnavailable(f"{host} is overloaded ({status})", remote=host, status=status)
    if status in UNKNOWN and response.content_type not in ("application/json", "application/a2a+json"):
        raise Lost(f"{host} answers with {status}")


def check_encoding(response: aiohttp.ClientResponse, url: str) -> None:
    if response.headers.get("Content-Encoding", "identity") != "identity":
        host = name_host(url)
        raise RemoteBadAnswer(f"{host} packs its answer, which was not asked for", remote=host)


def name_host(url: str) -> str:
    """Return host and port of a URL for people; errors omit the path, which may contain secrets."""
    return url.partition("://")[2].partition("/")[0].partition("?")[0] or url


@asynccontextmanager
async def _translating(url: str) -> AsyncGenerator[None]:
    """Translate all HTTP errors; errors raised by our caller pass through."""
    host = name_host(url)
    try:
        yield
    except (HeadraceError, Lost):
        raise
    except TargetRefused as error:
        raise RemoteNotAllowed(f"{host} is not reached: {error}", remote=host) from None
    except (aiohttp.ClientSSLError, ssl.SSLError):
        message = f"the connection to {host} is not safe: its TLS certificate or handshake is wrong"
        raise RemoteUnavailable(message, remote=host) from None
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
        raise RemoteUnavailable(f"{host} cannot be reached", remote=host) from None
    except TimeoutError:
        raise Lost(f"{host} did not answer in time") from None
    except aiohttp.InvalidURL:
        raise RemoteBadAnswer(f"{host}: not a URL", remote=host) from None
    except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError):
        raise Lost(f"{host} hung up") from None
    except aiohttp.ClientResponseError:
        raise RemoteBadAnswer(f"{host} does not speak HTTP", remote=host) from None
    except (aiohttp.ClientError, OSError) as error:
        raise Lost(f"no answer of {host}: {type(error).__name__}") from None
