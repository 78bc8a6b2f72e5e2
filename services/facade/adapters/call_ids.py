"""Function-call ids, which encode run id, call id and the last event received: "call_" and these three parts.

Any replica can therefore find the run and continue after that event. Up to ten million events, an id has at
most the 40 characters that OpenAI accepts, so a caller may continue the conversation with another provider.
"""

from __future__ import annotations

import re
import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass

_CALL_ID = re.compile(r"call_([\w-]{22})([\w-]{6})(\d{1,15})", re.ASCII)
_LONG_CALL_ID = re.compile(r"call_([0-9a-f]{32})_([0-9a-f]{8})_(\d{1,15})", re.ASCII)
"""Format of earlier versions; callers may still send such ids."""

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
    """Parse a call id; None if no facade issued it."""
    if (match := _LONG_CALL_ID.fullmatch(text)) is not None:
        run, call, seq = match.groups()
    elif (match := _CALL_ID.fullmatch(text)) is not None:
        run, call, seq = _decode(match[1]), _decode(match[2]), match[3]
    else:
        return None
    return CallId(str(uuid.UUID(run)), _FRONTEND + call, int(seq))


def _encode(value: bytes) -> str:
    return urlsafe_b64encode(value).decode().rstrip("=")


def _decode(text: str) -> str:
    return urlsafe_b64decode(f"{text}==").hex()
