"""Fetches one URL: each redirect checked like the first address, a bounded body, failures in words for the model."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from yarl import URL

from services.runtime.net.allow_list import AllowList
from services.runtime.net.checked_addresses import Resolve, checked_addresses, resolve_name
from services.runtime.net.targets import PORTS, Target, TargetRefused, parse_target
from services.tools.errors import ToolFailed
from services.tools.web.body import ACCEPT_ENCODING, read_body
from services.tools.web.http_client import load_http_client

FETCH_S = 20.0
"""Time of a fetch, redirects included."""

REDIRECTS_MAX = 5

PIECE_BYTES = 64 * 1024

REDIRECTS = frozenset({301, 302, 303, 307, 308})

HEADERS = {
    "User-Agent": "headrace/1.0 (+fetch_web)",
    "Accept": "text/html, application/xhtml+xml, text/plain, application/json, application/pdf;q=0.8, */*;q=0.1",
    "Accept-Encoding": ACCEPT_ENCODING,
}


@dataclass(frozen=True, slots=True)
class FetchedResponse:
    url: str
    status: int
    content_type: str
    """Lower case without parameters; empty when the server did not say."""
    charset: str | None
    body: bytes


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Fetches URLs; no cookies, connections or names are kept between fetches."""

    allow: AllowList = AllowList()
    resolve: Resolve = resolve_name
    ports: frozenset[int] = PORTS
    fetch_s: float = FETCH_S

    async def fetch(self, url: str) -> FetchedResponse:
        """Fetches a response of any status; raises ToolFailed."""
        await load_http_client()
        with fetch_errors(self.fetch_s):
            async with asyncio.timeout(self.fetch_s):
                for _ in range(REDIRECTS_MAX + 1):
                    answer = await self._get_once(parse_target(url, self.allow, self.ports))
                    if isinstance(answer, FetchedResponse):
                        return answer
                    url = answer
        raise ToolFailed(f"more than {REDIRECTS_MAX} redirects")

    async def _get_once(self, target: Target) -> FetchedResponse | str:
        from services.runtime.net.pinned_connection import pinned_session

        addresses = await checked_addresses(target, self.resolve, self.allow)
        async with (
            pinned_session(addresses) as session,
            session.get(target.url, headers=HEADERS, allow_redirects=False) as response,
        ):
            location = response.headers.get("Location")
            if response.status in REDIRECTS and location:
                try:
                    return str(target.url.join(URL(location)))
                except ValueError as error:
                    raise ToolFailed("the answer redirects to something that is no URL") from error
            body = await read_body(
                response.content.iter_chunked(PIECE_BYTES), response.headers.get("Content-Encoding", "")
            )
            media_type = response.content_type.lower() if "Content-Type" in response.headers else ""
            return FetchedResponse(str(target.url), response.status, media_type, response.charset, body)


@contextmanager
def fetch_errors(fetch_s: float) -> Generator[None]:
    """Turns everything that a fetch can raise into ToolFailed."""
    import aiohttp

    try:
        yield
    except TargetRefused as error:
        raise ToolFailed(str(error)) from error
    except TimeoutError as error:
        raise ToolFailed(f"no answer within {fetch_s:g} s") from error
    except (aiohttp.ClientSSLError, ssl.SSLError) as error:
        raise ToolFailed("the connection is not safe: the server's TLS certificate or handshake is wrong") from error
    except (aiohttp.ClientConnectorError, aiohttp.ServerDisconnectedError, ConnectionError) as error:
        raise ToolFailed("the server cannot be reached") from error
    except (aiohttp.ClientPayloadError, aiohttp.ClientResponseError) as error:
        raise ToolFailed("the server's answer is not valid HTTP") from error
    except (aiohttp.ClientError, OSError) as error:
        raise ToolFailed(f"the fetch failed: {type(error).__name__}") from error
