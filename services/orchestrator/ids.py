"""New ids in the forms of docs/reference/events.md."""

import hashlib

from services.runtime.randomness import new_hex

FRONTEND, APPROVAL = "t_", "approval_"

SUBAGENT = "subagent-"
"""Prefix of a sub-agent's id and of every context within it."""


def new_msg_id() -> str:
    return "m_" + new_hex(4)


def new_frontend_id() -> str:
    return FRONTEND + new_hex(4)


def new_action_id() -> str:
    return "a_" + new_hex(4)


def approval_id(run_id: str, tool_id: str, question: str) -> str:
    """Return the id of an approval; `question` is unique among those about the call."""
    return APPROVAL + derived_id(run_id, tool_id, question)


def subagent_id(run_id: str, tool_id: str) -> str:
    return SUBAGENT + derived_id(run_id, tool_id)


def derived_id(*names: str) -> str:
    """Return 8 hex digits, always the same for these names."""
    return hashlib.sha256("/".join(names).encode()).hexdigest()[:8]


def unique_tool_id(given: str, used: set[str]) -> str:
    """Return `given`, made unique where it is empty or in `used`, to which it is added."""
    tool_id = given
    while not tool_id or tool_id in used:
        tool_id = f"{given or 'call'}_{new_hex(4)}"
    used.add(tool_id)
    return tool_id
