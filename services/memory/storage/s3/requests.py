"""Signed requests to a bucket, with bounded concurrency, retries and time."""

from __future__ import annotations

import asyncio
import io
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
import structlog
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from services.memory.storage.s3.availability import REST_S, SECONDS, Availability
from services.memory.storage.s3.errors import (
    PASSING,
    Passing,
    Refused,
    make_away_error,
    make_refusal_error,
    read_refusal,
)
from services.runtime.clock import monotonic_s
from services.runtime.ending import CannotServe
from services.runtime.net.aws import AwsSession, NoCredentials
from services.runtime.net.pinned_connection import read_bounded_body
from services.runtime.randomness import choose_uniform

if TYPE_CHECKING:
    from services.memory.storage.s3.settings import Place, S3Settings

BODY_BYTES_MAX = 128 * 1024 * 1024
"""Maximum size of an object that is read, larger than any message of a call."""

DEFAULT_REGION = "us-east-1"
"""Region for stores without regions."""

BACKOFF_S = 0.1
"""Pause before the first retry of a request; it doubles each time."""

IDLE_S = 15.0
"""Time after which an unused connection is closed; shorter than stores and balancers keep it open."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Limits:
    patience_s: float = 12.0
    """How long a call waits, as for the database; less than its callers do."""
    connect_s: float = 3.0
    silence_s: float = 5.0
    """How long a store may stay silent, before or during a response, until the request is retried."""
    attempts_max: int = 4
    requests_max: int = 16
    rest_s: float = REST_S


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Request:
    operation: str
    """Name of the operation in metrics."""
    method: str
    key: str = ""
    """Key of the object; empty for the bucket itself."""
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    headers: Mapping[str, str]
    body: bytes


class Requests:
    """Used on the event loop only."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        threads: ThreadPoolExecutor,
        place: Place,
        settings: S3Settings,
        limits: Limits,
    ) -> None:
        self._http, self._threads, self._limits = http, threads, limits
        self._session = AwsSession()
        if settings.access_key_id:
            self._session.set_key(settings.access_key_id, settings.secret_access_key, settings.session_token)
        try:
            self._region = settings.region or self._session.find_region() or DEFAULT_REGION
            self.address, self._path = self._find_address(place, settings)
        except (NoCredentials, ValueError) as error:
            raise CannotServe(f"AWS_PROFILE, AWS_REGION: {error}") from error
        self._slots = asyncio.Semaphore(limits.requests_max)
        self._availability = Availability(limits.rest_s)

    async def send(self, request: Request) -> Answer | None:
        """Return the store's response; None if the object does not exist.

        Raises:
            Overloaded: The store cannot be reached, or refuses.
            DiskFull: The store has no room.
        """
        try:
            return await self.ask(request)
        except Refused as refused:
            log.error("bucket of the blobs refuses", operation=request.operation, code=refused.code)
            raise make_refusal_error(refused) from refused

    async def ask(self, request: Request) -> Answer | None:
        """Like `send`, but raise Refused unchanged."""
        if not self._availability.may_ask():
            raise make_away_error("it did not answer a moment ago")
        began_s, outcome, kind = monotonic_s(), "away", ""
        try:
            async with asyncio.timeout(self._limits.patience_s):
                answer = await self._try(request)
        except Refused as refused:
            outcome = "refused"
            self._availability.note_success()
            raise refused
        except (aiohttp.ClientError, OSError) as error:  # a timeout is an OSError
            kind = str(error) if isinstance(error, Passing) else type(error).__name__
            self._availability.note_failure(kind)
            raise make_away_error(kind) from error
        else:
            outcome = "missing" if answer is None else "ok"
            self._availability.note_success()
            return answer
        finally:
            if not kind:
                self._availability.note_nothing()
            SECONDS.labels(request.operation, outcome).observe(monotonic_s() - began_s)

    async def _try(self, request: Request) -> Answer | None:
        async with self._slots:
            for attempt in range(1, self._limits.attempts_max):
                try:
                    return await self._send_once(request)
                except (aiohttp.ClientError, OSError, Passing):
                    await asyncio.sleep(BACKOFF_S * 2 ** (attempt - 1) * choose_uniform(0.5, 1.5))
            return await self._send_once(request)

    async def _send_once(self, request: Request) -> Answer | None:
        path = quote(f"{self._path}/{request.key}", safe="/-_.~")
        query = urlencode(request.query, quote_via=quote, safe="-_.~")
        url = f"{self.address}{path}{'?' if query else ''}{query}"

        def sign() -> dict[str, str]:
            try:
                signed = self._session.sign("s3", self._region, request.method, url, request.headers, request.body)
            except NoCredentials as error:
                raise (Passing(str(error)) if error.may_pass else Refused(401, str(error))) from error
            return signed.headers

        headers = await asyncio.get_running_loop().run_in_executor(self._threads, sign)
        async with self._http.request(
            request.method,
            URL(url, encoded=True),
            data=io.BytesIO(request.body),
            headers=headers,
            allow_redirects=False,
        ) as response:
            try:
                body = await read_bounded_body(response, BODY_BYTES_MAX)
            except ValueError as error:
                raise Refused(response.status, str(error)) from error
            if 200 <= response.status < 300:
                return Answer(response.headers, body)
            refused = read_refusal(response.status, body)
            if response.status in PASSING:
                raise Passing(refused.code)
            if response.status == 404 and request.key and refused.code != "NoSuchBucket":
                return None
            raise refused

    def _find_address(self, place: Place, settings: S3Settings) -> tuple[str, str]:
        """Return scheme and host of the bucket, and the path before its keys, without a trailing slash."""
        if settings.endpoint_url:
            parts = urlsplit(settings.endpoint_url)
            return f"{parts.scheme}://{parts.netloc}", f"{parts.path.rstrip('/')}/{place.bucket}"
        host = self._session.find_s3_host(self._region)
        if "." in place.bucket:  # no certificate covers such a name
            return f"https://{host}", f"/{place.bucket}"
        return f"https://{place.bucket}.{host}", ""


class _Resolver(AbstractResolver):
    """Resolves names in separate threads, because all of the loop's may be waiting for bucket requests."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        def resolve() -> list[tuple[int, int, str]]:
            infos = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
            return [(kind, proto, str(address[0])) for kind, _, proto, _, address in infos]

        found = await asyncio.get_running_loop().run_in_executor(self._threads, resolve)
        return [
            ResolveResult(hostname=host, host=address, port=port, family=kind, proto=proto, flags=socket.AI_NUMERICHOST)
            for kind, proto, address in found
        ]

    async def close(self) -> None:
        pass


@asynccontextmanager
async def open_requests(place: Place, settings: S3Settings, limits: Limits) -> AsyncGenerator[Requests]:
    """Yield the requests. Raises OSError if the CA file cannot be read, CannotServe for an unknown profile or
    region."""
    tls = ssl.create_default_context(cafile=str(settings.ca_bundle)) if settings.ca_bundle else True
    threads = ThreadPoolExecutor(2, "bucket")
    connector = aiohttp.TCPConnector(
        limit=limits.requests_max, ssl=tls, resolver=_Resolver(threads), keepalive_timeout=IDLE_S
    )
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,  # an object is given back as it was put
        skip_auto_headers=("Accept-Encoding", "Content-Type"),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=limits.connect_s, sock_read=limits.silence_s),
    )
    try:
        async with session as http:
            yield Requests(http, threads, place, settings, limits)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
