from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import anyio
import httpx2
from mcp import MCPError
from mcp.client.subscriptions import SubscriptionLost
from pydantic import ValidationError

REASON_CHARS_MAX = 500

BROKEN = "its answer breaks the protocol"

FOREIGN = (
    MCPError,
    SubscriptionLost,
    httpx2.HTTPError,
    httpx2.InvalidURL,
    anyio.ClosedResourceError,
    anyio.BrokenResourceError,
    anyio.EndOfStream,
    ValidationError,
    OSError,
    RuntimeError,  # the SDK's for a protocol version that it does not know, and for input it cannot give
    ValueError,  # a null character in a command
)

# The SDK logs unparseable text verbatim, which users or tools wrote.
logging.getLogger("mcp").setLevel(logging.CRITICAL + 1)


@dataclass(frozen=True, slots=True)
class Challenge:
    """A server's authorization requirements in WWW-Authenticate, if it states any."""

    resource_metadata: str = ""
    scope: str = ""
    wants_more: bool = False
    """Whether the credential is valid, but lacks scopes."""


class ServerFailed(Exception):
    """A server is unreachable, gone, or refuses; the text explains it."""

    challenge: Challenge | None = None
    """Set if it has refused the credential."""

    may_have_run: bool = False
    """Whether it may have carried out the request."""

    has_ended: bool = False
    """Whether its process has ended before its first answer."""

    stderr: str = ""
    """The end of what its process wrote to standard error before its first answer."""

    @property
    def is_refusal(self) -> bool:
        return self.challenge is not None


class RequestNotTaken(ServerFailed):
    """The server did not receive the request, or did not accept it in this session, so it can be sent again."""


class CredentialRefused(httpx2.TransportError):
    """A server returned status 401, or requires more scopes; the SDK would not report it."""

    def __init__(self, message: str, challenge: Challenge) -> None:
        super().__init__(message)
        self.challenge = challenge


@contextmanager
def server_errors() -> Generator[None]:
    """Raise ServerFailed in place of foreign errors, and others bare; the SDK's task groups wrap even a single one."""
    try:
        yield
    except ExceptionGroup as group:
        first: Exception = group
        while isinstance(first, ExceptionGroup):
            first = first.exceptions[0]
        if not isinstance(first, FOREIGN):
            raise first from group  # ours, from a call in its own session, or a bug
        raise make_failure(first) from group
    except FOREIGN as error:
        raise make_failure(error) from error


def make_failure(error: Exception) -> ServerFailed:
    failure = ServerFailed(_format_reason(error))
    failure.challenge = error.challenge if isinstance(error, CredentialRefused) else None
    return failure


def _format_reason(error: Exception) -> str:
    match error:
        case ValidationError():
            return BROKEN  # the error's own text repeats the answer
        case anyio.ClosedResourceError() | anyio.BrokenResourceError() | anyio.EndOfStream():
            return "the connection has ended"
        case TimeoutError():
            return "it did not answer in time"
        case _:
            return (str(error) or type(error).__name__)[:REASON_CHARS_MAX]
