"""Function-call ids, which say where the result belongs: call_<run>_<call>_<seq>.

Any facade can thus find the run and continue after the last event that the caller received.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

_CALL_ID = re.compile(r"call_([0-9a-f]{32})_([0-9a-f]{8})_(\d{1,15})", re.ASCII)

_FRONTEND = "t_"


@dataclass(frozen=True, slots=True)
class CallId:
    run_id: str
    tool_id: str

    last_seq: int
    """Sequence number of the last event that the caller received."""

    def __str__(self) -> str:
        return f"call_{uuid.UUID(self.run_id).hex}_{self.tool_id.removeprefix(_FRONTEND)}_{self.last_seq}"


def parse_call_id(text: str) -> CallId | None:
    """Parse a call id; None when no facade made it."""
    found = _CALL_ID.fullmatch(text)
    if found is None:
        return None
    run, call, seq = found.groups()
    return CallId(str(uuid.UUID(run)), _FRONTEND + call, int(seq))
