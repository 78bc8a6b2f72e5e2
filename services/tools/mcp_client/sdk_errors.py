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

# The SDK logs what it cannot parse with the text itself, which is what users or tools wrote.
logging.getLogger("mcp").setLevel(logging.CRITICAL + 1)


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a server says of how to be authorized, where it says something (WWW-Authenticate)."""

    resource_metadata: str = ""
    scope: str = ""


class ServerFailed(Exception):
    """A server cannot be reached, has gone, or refuses; the text says why."""

    challenge: Challenge | None = None
    """There when it has refused the credential."""

    may_have_run: bool = False
    """Whether it may have done what it was asked to."""

    @property
    def is_refusal(self) -> bool:
        return self.challenge is not None


class RequestNotTaken(ServerFailed):
    """The server has not got the request, or has not taken it in this session: it can be sent once more."""


class CredentialRefused(httpx2.TransportError):
    """A server has answered with status 401, or wants more scopes; the SDK would tell nobody."""

    def __init__(self, message: str, challenge: Challenge) -> None:
        super().__init__(message)
        self.challenge = challenge


@contextmanager
def server_errors() -> Generator[None]:
    """Raises ServerFailed in place of foreign errors, and others bare; the SDK's task groups wrap even a single one."""
    try:
        yield
    except ExceptionGroup as group:
        first: Exception = group
        while isinstance(first, ExceptionGroup):
            first = first.exceptions[0]
        if not isinstance(first, FOREIGN):
            raise first from group  # ours, of a call in a session of its own, or a bug
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
            return "its answer breaks the protocol"  # the error's own text repeats the answer
        case anyio.ClosedResourceError() | anyio.BrokenResourceError() | anyio.EndOfStream():
            return "the connection has ended"
        case TimeoutError():
            return "it did not answer in time"
        case _:
            return (str(error) or type(error).__name__)[:REASON_CHARS_MAX]
