"""Request and trace ids: from a call's metadata into context, and on to the calls made meanwhile."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from contextvars import ContextVar

REQUEST_ID, TRACEPARENT = "x-request-id", "traceparent"

_SAFE = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
"""What a caller's request id may look like: anything else would forge log lines or headers."""

_forwarded: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("forwarded", default=())


def adopt(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Take the ids of an incoming call, or make them, and return the request id; the caller's task owns them."""
    given = {key: value for key, value in metadata if key in (REQUEST_ID, TRACEPARENT) and isinstance(value, str)}
    request_id = safe_request_id(given.get(REQUEST_ID))
    forwarded = [(REQUEST_ID, request_id)]
    if TRACEPARENT in given:
        forwarded.append((TRACEPARENT, given[TRACEPARENT]))
    _forwarded.set(tuple(forwarded))
    return request_id


def safe_request_id(given: str | None) -> str:
    """The id a caller gave, when it is fit for logs and headers, else a new one."""
    return given if given and _SAFE.fullmatch(given) else str(uuid.uuid4())


def forwarded() -> tuple[tuple[str, str], ...]:
    """Metadata that every call to a peer is given."""
    return _forwarded.get()
