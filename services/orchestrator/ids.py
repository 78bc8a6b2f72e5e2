"""New ids in the forms of events.md, and the clock of events."""

import secrets
import time
import uuid


def new_uuid() -> str:
    """A run, chat or request id."""
    return str(uuid.uuid4())


def new_msg_id() -> str:
    """The id that the pieces of one model answer share."""
    return "m_" + secrets.token_hex(4)


def unique_tool_id(given: str, used: set[str]) -> str:
    """The provider's id of a call, made unique where it is missing or in `used`, to which it is added."""
    tool_id = given
    while not tool_id or tool_id in used:
        tool_id = f"{given or 'call'}_{secrets.token_hex(4)}"
    used.add(tool_id)
    return tool_id


def now_ms() -> int:
    """Unix milliseconds."""
    return time.time_ns() // 1_000_000
