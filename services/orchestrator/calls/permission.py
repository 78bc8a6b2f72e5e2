"""Decides whether a call runs, is refused, or needs a person's approval."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.v1 import tools_pb2
from services.orchestrator.calls import outcomes
from services.orchestrator.calls.own_tools.catalogue import NAMES
from services.orchestrator.people import approvals
from services.orchestrator.people.grants import has_used_grant, use_grant
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.approvals.verdict import verdict
from services.orchestrator.run.granted import find_grants
from services.orchestrator.run.scope import Scope


@dataclass(frozen=True, slots=True)
class Permission:
    outcome: tools_pb2.ToolOutcome | None = None
    """None when the call runs."""

    note: str = ""


async def check_permission(scope: Scope, call: Call) -> Permission:
    if not _is_granted(scope, call):
        return Permission(outcomes.make_refusal("denied", message="the operator grants this agent no such tool"))
    if call.kind == "own" or has_used_grant(scope, call):
        return Permission()
    found = await verdict(scope.run.rules, call)
    # What rules that have changed since say is for the next question: somebody may have answered this one.
    has_asked = approvals.has_asked(scope, call, approvals.PERMISSION)
    if found.then == "allow" and not has_asked:
        return Permission()
    if found.then == "deny" and not has_asked:
        return Permission(outcomes.make_refusal("denied", message=f"not allowed here: {found.reason}"))
    if not has_asked and await use_grant(scope, call, found):
        return Permission()
    answer = await approvals.ask_person(scope, call, found)
    if answer.decision == "reject":
        return Permission(outcomes.make_refusal("rejected", message=answer.note or "a person rejected this call"))
    if answer.decision == "edit":
        call.params = answer.arguments
        changed = f"a person changed the arguments before this ran: {answer.arguments}"
        return Permission(note=f"{changed}; {answer.note}" if answer.note else changed)
    return Permission(note=f"a person approved this call and says: {answer.note}" if answer.note else "")


def _is_granted(scope: Scope, call: Call) -> bool:
    """Return whether the agent may call this now, which may have been otherwise when the model was shown it."""
    grants = find_grants(scope)
    is_free = call.kind == "own" or call.is_programs or call.name.casefold() in NAMES
    return grants is None or is_free or grants.allows_tool(call.name)
