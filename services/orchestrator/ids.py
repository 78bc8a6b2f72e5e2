"""New ids in the forms of docs/reference/events.md."""

import hashlib
import re
from contextvars import ContextVar

from services.runtime.randomness import new_hex, new_uuid

FRONTEND, APPROVAL, CREDENTIAL, INPUT = "t_", "approval_", "credential_", "input_"

SUBAGENT = "subagent-"
"""Prefix of a sub-agent's id and of every context within it."""


TASK = "task-"
"""Prefix of a task's context, within that of the planning scope."""

RUN_IDS: ContextVar[list[str] | None] = ContextVar("RUN_IDS", default=None)
"""Ids for the next runs. A replay supplies the recorded runs' ids, from which all other ids are derived."""


SCHEDULED = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}:\d{1,15}", re.ASCII)
"""Request id of a schedule's run: the schedule and the due time. Anybody may choose such an id."""


def new_msg_id() -> str:
    return "m_" + new_hex(4)


def new_run_id() -> str:
    """Return a new id, or the next one in RUN_IDS."""
    given = RUN_IDS.get()
    return given.pop(0) if given else new_uuid()


def frontend_id(run_id: str, call_id: str) -> str:
    return FRONTEND + derived_id(run_id, call_id)


def action_id(run_id: str, call_id: str) -> str:
    return "a_" + derived_id(run_id, call_id)


def approval_id(run_id: str, tool_id: str, question: str) -> str:
    """Return the id of an approval; `question` must be unique among those about the call."""
    return APPROVAL + derived_id(run_id, tool_id, question)


def credential_id(run_id: str, tool_id: str, number: int) -> str:
    """Return the id of the gate for the call's `number`-th request for a credential."""
    return CREDENTIAL + derived_id(run_id, tool_id, str(number))


def input_id(run_id: str, tool_id: str, name: str) -> str:
    """Return the id of the gate for the input that the call's server requests under this name."""
    return INPUT + derived_id(run_id, tool_id, name)


def grant_id(run_id: str, gate_id: str) -> str:
    """Return the id of the permission an approval grants; it is derived, so that it is granted only once."""
    return "grant_" + derived_id(run_id, gate_id) + derived_id(gate_id, run_id)


def subagent_id(run_id: str, tool_id: str) -> str:
    return SUBAGENT + derived_id(run_id, tool_id)


def derived_id(*names: str) -> str:
    """Return 8 hex digits, always the same for the same names."""
    return hashlib.sha256("/".join(names).encode()).hexdigest()[:8]


def unique_tool_id(run_id: str, given: str, used: set[str]) -> str:
    """Return `given`, made unique if it is empty or in `used`, and add it to `used`; a replay returns the same id."""
    tool_id, number = given, len(used)
    while not tool_id or tool_id in used:
        tool_id = f"{given or 'call'}_{derived_id(run_id, given, str(number))}"
        number += 1
    used.add(tool_id)
    return tool_id
