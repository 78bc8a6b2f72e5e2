from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

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


class ServerFailed(Exception):
    """A server cannot be reached, has gone, or refuses; the text says why."""

    is_refusal = False
    """Whether it has refused the credential."""


class CredentialRefused(httpx2.TransportError):
    """A server has answered with status 401; the SDK would tell nobody."""


@contextmanager
def server_errors() -> Generator[None]:
    """Raises ServerFailed in place of foreign errors; the SDK's task groups wrap even a single one."""
    try:
        yield
    except ExceptionGroup as group:
        first: Exception = group
        while isinstance(first, ExceptionGroup):
            first = first.exceptions[0]
        if not isinstance(first, FOREIGN):
            raise
        raise _make_failure(first) from group
    except FOREIGN as error:
        raise _make_failure(error) from error


def _make_failure(error: Exception) -> ServerFailed:
    failure = ServerFailed(_format_reason(error))
    failure.is_refusal = isinstance(error, CredentialRefused)
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
