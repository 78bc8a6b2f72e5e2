"""The id of a function call says where its result goes: call_<run>_<call>_<seq>.

So a result finds its run through any facade, and the answer goes on behind the last event that its caller has had.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

_CALL_ID = re.compile(r"call_([0-9a-f]{32})_([0-9a-f]{8})_(\d{1,15})", re.ASCII)

_FRONTEND = "t_"
"""Prefix of the toolId of a frontend tool."""


@dataclass(frozen=True, slots=True)
class CallId:
    """A call of one of the caller's functions."""

    run_id: str
    tool_id: str

    last_seq: int
    """The last event of the run that its caller has had."""

    def __str__(self) -> str:
        return f"call_{uuid.UUID(self.run_id).hex}_{self.tool_id.removeprefix(_FRONTEND)}_{self.last_seq}"


def parse_call_id(text: str) -> CallId | None:
    """The call with that id; None when no facade has made it."""
    found = _CALL_ID.fullmatch(text)
    if found is None:
        return None
    run, call, seq = found.groups()
    return CallId(str(uuid.UUID(run)), _FRONTEND + call, int(seq))
