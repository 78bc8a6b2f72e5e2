"""Function-call ids, which say where the result belongs: call_ and run, call and number of the last event received.

Any facade can thus find the run and continue behind that event. They have the 40 characters that OpenAI takes in a
request, so that a caller may go on with another provider, unless a run has ten million events.
"""

from __future__ import annotations

import re
import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass

_CALL_ID = re.compile(r"call_([\w-]{22})([\w-]{6})(\d{1,15})", re.ASCII)
_LONG_CALL_ID = re.compile(r"call_([0-9a-f]{32})_([0-9a-f]{8})_(\d{1,15})", re.ASCII)
"""The form of earlier versions, whose callers may still answer."""

_FRONTEND = "t_"


@dataclass(frozen=True, slots=True)
class CallId:
    run_id: str
    tool_id: str

    last_seq: int
    """Sequence number of the last event that the caller received."""

    def __str__(self) -> str:
        run, call = uuid.UUID(self.run_id).bytes, bytes.fromhex(self.tool_id.removeprefix(_FRONTEND))
        return f"call_{_encode(run)}{_encode(call)}{self.last_seq}"


def parse_call_id(text: str) -> CallId | None:
    """Parse a call id; None when no facade made it."""
    if (found := _LONG_CALL_ID.fullmatch(text)) is not None:
        run, call, seq = found.groups()
    elif (found := _CALL_ID.fullmatch(text)) is not None:
        run, call, seq = _decode(found[1]), _decode(found[2]), found[3]
    else:
        return None
    return CallId(str(uuid.UUID(run)), _FRONTEND + call, int(seq))


def _encode(value: bytes) -> str:
    return urlsafe_b64encode(value).decode().rstrip("=")


def _decode(text: str) -> str:
    return urlsafe_b64decode(f"{text}==").hex()
