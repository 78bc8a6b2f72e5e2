"""Ids that every call carries on in its metadata: request, run, span, and users' credentials for MCP servers.

`x-mcp-<server>-authorization` is the Authorization header of the user's calls to that server; it is never logged.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from contextvars import ContextVar

import structlog

from services.runtime.telemetry import spans

REQUEST_ID, RUN_ID, TRACEPARENT = "x-request-id", "x-run-id", spans.TRACEPARENT

_SAFE = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
"""The form of a caller's request id; any other could forge log lines or headers."""

_CREDENTIAL = re.compile(r"x-mcp-[a-z0-9_-]{1,32}-authorization")

CREDENTIALS_CHARS_MAX = 4096
"""Size of all credentials together, as gRPC refuses more than 8 KiB of metadata."""

log = structlog.get_logger()

_forwarded: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("forwarded", default=())


def adopt_metadata(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Take or make the ids of an incoming call, in the caller's task, and return the request id."""
    given = {key: value for key, value in metadata if isinstance(value, str)}
    request_id = ensure_request_id(given.get(REQUEST_ID))
    forwarded = [(REQUEST_ID, request_id)]
    if TRACEPARENT in given and not spans.is_recording():
        forwarded.append((TRACEPARENT, given[TRACEPARENT]))
    if _SAFE.fullmatch(given.get(RUN_ID, "")):
        forwarded.append((RUN_ID, given[RUN_ID]))
    _forwarded.set((*forwarded, *find_mcp_credentials(given.items())))
    return request_id


def find_mcp_credentials(given: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the credentials for MCP servers among headers or metadata; none if they are too long together."""
    found = tuple(
        (key.lower(), value)
        for key, value in given
        if _CREDENTIAL.fullmatch(key.lower()) and value.isascii() and value.isprintable()
    )
    if sum(len(key) + len(value) for key, value in found) > CREDENTIALS_CHARS_MAX:
        log.warning("credentials dropped", keys=[key for key, _ in found], chars_max=CREDENTIALS_CHARS_MAX)
        return ()
    return found


def find_mcp_credential(server: str) -> str:
    """Return the current user's credential for an MCP server; empty if there is none."""
    return dict(_forwarded.get()).get(f"x-mcp-{server.lower()}-authorization", "")


def ensure_request_id(given: str | None) -> str:
    return given if given and _SAFE.fullmatch(given) else str(uuid.uuid4())


def bind_run_id(run_id: str) -> None:
    """Name this run in the task's log lines and calls from now on."""
    structlog.contextvars.bind_contextvars(run_id=run_id)
    _forwarded.set((*(pair for pair in _forwarded.get() if pair[0] != RUN_ID), (RUN_ID, run_id)))


def current_request_id() -> str:
    """Return the request id; empty outside of calls."""
    return dict(_forwarded.get()).get(REQUEST_ID, "")


def get_log_fields() -> dict[str, str]:
    """Return the current call's ids for log lines, without those of its span."""
    known = dict(_forwarded.get())
    return {name: known[key] for key, name in ((REQUEST_ID, "request_id"), (RUN_ID, "run_id")) if key in known}


def forward_metadata() -> tuple[tuple[str, str], ...]:
    if traceparent := spans.current_traceparent():
        return (*_forwarded.get(), (TRACEPARENT, traceparent))
    return _forwarded.get()
