"""Metadata that calls pass on: ids of request, run and span, and users' credentials for MCP servers and tools.

`x-mcp-<server>-authorization` is the user's Authorization header for that server, `x-tool-<name>-credential` a
credential of tools.yaml; neither is ever logged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextvars import ContextVar

import structlog

from services.runtime.randomness import new_uuid
from services.runtime.telemetry import spans

REQUEST_ID, RUN_ID, TRACEPARENT = "x-request-id", "x-run-id", spans.TRACEPARENT

_SAFE = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
"""Request ids that cannot forge log lines or headers."""

CREDENTIALS_CHARS_MAX = 4096
"""Maximum size of all credentials; gRPC refuses more than 8 KiB of metadata."""

log = structlog.get_logger()

CREDENTIALS = ("x-mcp-", "x-tool-")
"""Beginnings of the keys of users' credentials."""

_forwarded: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("forwarded", default=())


def adopt_metadata(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Adopt or create the ids of an incoming call for its task, its log lines and its calls; return the request id."""
    given: dict[str, str] = {}
    credentials: list[tuple[str, str]] = []
    for key, value in metadata:
        if type(value) is str:
            given[key] = value
            if key.startswith(CREDENTIALS):
                credentials.append((key, value))
    request_id = ensure_request_id(given.get(REQUEST_ID))
    fields = {"request_id": request_id}
    forwarded = [(REQUEST_ID, request_id)]
    if TRACEPARENT in given and not spans.is_recording():
        forwarded.append((TRACEPARENT, given[TRACEPARENT]))
    if _SAFE.fullmatch(given.get(RUN_ID, "")):
        fields["run_id"] = given[RUN_ID]
        forwarded.append((RUN_ID, given[RUN_ID]))
    if credentials:
        forwarded += find_mcp_credentials(credentials)
    _forwarded.set(tuple(forwarded))
    structlog.contextvars.bind_contextvars(**fields)
    return request_id


def find_mcp_credentials(given: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return users' credentials, the last one of each key; none if they are too long together."""
    known = {
        key.lower(): value
        for key, value in given
        if is_credential(key.lower()) and value.isascii() and value.isprintable()
    }
    found = tuple(known.items())
    if sum(len(key) + len(value) for key, value in found) > CREDENTIALS_CHARS_MAX:
        log.warning("credentials dropped", keys=[key for key, _ in found], chars_max=CREDENTIALS_CHARS_MAX)
        return ()
    return found


def find_mcp_credential(server: str) -> str:
    return dict(_forwarded.get()).get(f"x-mcp-{server.lower()}-authorization", "")


def name_tool_credential(name: str) -> str:
    """Return the metadata key of a credential of tools.yaml."""
    return f"x-tool-{name}-credential"


def find_tool_credential(name: str) -> str:
    """Return the user's credential of this name in tools.yaml; empty if the call has none."""
    return dict(_forwarded.get()).get(name_tool_credential(name), "")


def list_tool_credentials() -> tuple[str, ...]:
    """Return the values of the call's credentials of tools.yaml."""
    return tuple(value for key, value in _forwarded.get() if key.startswith("x-tool-"))


def list_credentials() -> tuple[str, ...]:
    """Return the values of users' credentials, with and without their scheme."""
    values = [value for key, value in _forwarded.get() if is_credential(key)]
    return tuple(part for value in values for part in (value, value.rpartition(" ")[2]))


def ensure_request_id(given: str | None) -> str:
    return given if given and _SAFE.fullmatch(given) else new_uuid()


def bind_run_id(run_id: str) -> None:
    """Add the run's id to this task's log lines and calls."""
    structlog.contextvars.bind_contextvars(run_id=run_id)
    _forwarded.set((*(pair for pair in _forwarded.get() if pair[0] != RUN_ID), (RUN_ID, run_id)))


def current_request_id() -> str:
    return dict(_forwarded.get()).get(REQUEST_ID, "")


def forward_metadata() -> tuple[tuple[str, str], ...]:
    if traceparent := spans.current_traceparent():
        return (*_forwarded.get(), (TRACEPARENT, traceparent))
    return _forwarded.get()


_KEY = re.compile(r"x-mcp-[a-z0-9_-]{1,32}-authorization|x-tool-[a-z0-9_-]{1,32}-credential")

_TAKE_THEM = ("/headrace.v1.AgentService/", "/headrace.v1.GateService/", "/headrace.v1.ToolService/Execute")
"""A run keeps them for its calls, and the execution of a tool presents them to its server."""


def is_credential(key: str) -> bool:
    return key.startswith(CREDENTIALS) and _KEY.fullmatch(key) is not None


def takes_credentials(method: str) -> bool:
    """Return whether the method, given by its path, needs users' credentials."""
    return method.startswith(_TAKE_THEM)
