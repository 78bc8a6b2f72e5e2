"""New ids in the forms of events.md, and the clock of events."""

import hashlib
import secrets
import time
import uuid

FRONTEND = "t_"
"""What the event id of a frontend tool's call begins with."""

SUBAGENT = "subagent-"
"""What a sub-agent's id begins with, and every context within it."""


def new_uuid() -> str:
    """A run, chat or request id."""
    return str(uuid.uuid4())


def new_msg_id() -> str:
    """The id that the pieces of one model answer share."""
    return "m_" + secrets.token_hex(4)


def new_frontend_id() -> str:
    """The event id of a frontend tool's call."""
    return FRONTEND + secrets.token_hex(4)


def new_action_id() -> str:
    """The event id of an action."""
    return "a_" + secrets.token_hex(4)


def approval_id(run_id: str, tool_id: str, number: int) -> str:
    """What a person's decision about a call is submitted with; `number` counts the questions about it."""
    return "approval_" + derived_id(run_id, tool_id, str(number))


def subagent_id(run_id: str, tool_id: str) -> str:
    """The id of the sub-agent that a call has work, and of its context."""
    return SUBAGENT + derived_id(run_id, tool_id)


def derived_id(*names: str) -> str:
    """8 hex digits that these names always give."""
    return hashlib.sha256("/".join(names).encode()).hexdigest()[:8]


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
