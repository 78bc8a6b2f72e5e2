"""Posts one event to checked addresses, without following redirects, within a time limit."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass

import aiohttp

from services.runtime.net.allow_list import AllowList
from services.runtime.net.pinned_connection import pinned_session
from services.runtime.net.targets import HTTPS_PORTS as PORTS
from services.runtime.net.targets import Resolve, TargetRefused, checked_addresses, parse_https_target, resolve_name

SEND_S = 15.0
"""Time of an attempt, from name resolution to the response's headers."""

REDIRECTS = range(300, 400)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int = 0
    """HTTP status; 0 without a response."""
    failure: str = ""
    """Why the event was not delivered; empty if it was."""


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends events; keeps no cookies, connections or DNS results between them."""

    allow: AllowList = AllowList()
    resolve: Resolve = resolve_name
    ports: frozenset[int] = PORTS
    send_s: float = SEND_S
    tls: ssl.SSLContext | None = None
    """Trusted authorities; None: those of the machine."""

    async def send(self, url: str, headers: dict[str, str], body: bytes) -> Answer:
        """Post `body` once; only the response's status is read."""
        try:
            async with asyncio.timeout(self.send_s):
                status = await self._post(url, headers, body)
        except TargetRefused as error:
            return Answer(failure=str(error))
        except TimeoutError:
            return Answer(failure=f"no answer within {self.send_s:g} s")
        except (aiohttp.ClientSSLError, ssl.SSLError):
            return Answer(failure="the connection is not safe: the server's TLS certificate or handshake is wrong")
        except (aiohttp.ClientConnectorError, aiohttp.ServerDisconnectedError, ConnectionError):
            return Answer(failure="the server cannot be reached, or hung up")
        except (aiohttp.ClientPayloadError, aiohttp.ClientResponseError):
            return Answer(failure="the answer is not valid HTTP")
        except (aiohttp.ClientError, OSError) as error:
            return Answer(failure=f"not delivered: {type(error).__name__}")
        if 200 <= status < 300:
            return Answer(status)
        return Answer(status, "redirects are not followed" if status in REDIRECTS else f"answered with {status}")

    async def _post(self, url: str, headers: dict[str, str], body: bytes) -> int:
        target = parse_https_target(url, self.allow, self.ports, verb="delivered to")
        addresses = await checked_addresses(target, self.resolve, self.allow)
        async with (
            pinned_session(addresses) as session,
            session.post(
                target.url, data=body, headers=headers, allow_redirects=False, ssl=self.tls or True
            ) as response,
        ):
            response.close()  # its body may have no end
            return response.status
