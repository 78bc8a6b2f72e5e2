"""An approval that is to hold for later calls: who may grant that, and what of it is granted where several approve."""

from __future__ import annotations

from headrace.errors import InvalidRequest, PermissionDenied, QueueFull
from headrace.v1 import agent_pb2
from services.orchestrator import ids
from services.orchestrator.calls.gates.ask_person import ApprovalAnswer
from services.orchestrator.calls.gates.grants import FOR_CHAT, FOR_RUN, GRANTS_MAX, hash_tool, list_grants
from services.orchestrator.run.control.gate_state import GateState
from services.orchestrator.run.run import Run
from services.runtime.auth.answerers import may_answer
from services.runtime.auth.identity import Identity
from services.runtime.clock import now_ms

GRANT_FIELD = "payload.grant"


async def check_grant(run: Run, gate: GateState, answer: ApprovalAnswer, caller: Identity) -> None:
    """Refuse an answer that grants what it cannot.

    Raises:
        InvalidRequest: The approval is for its call alone.
        PermissionDenied: The gate's own rule does not name the caller, to whom it was passed on.
        QueueFull: The chat has too many grants.
    """
    if not answer.grant:
        return
    if not gate.opened.grounds:
        raise InvalidRequest.of(GRANT_FIELD, "is not for this approval, which is about its call alone")
    rule = gate.opened.answerers
    if not may_answer(rule.any_of, run.identity, caller, not_requester=rule.not_requester):
        why = "it was passed on to you, so you may answer it, and grant nothing for later calls"
        raise PermissionDenied(f"you may not grant this: {why}", gateId=gate.gate_id)
    if len(await list_grants(run)) >= GRANTS_MAX:
        raise QueueFull(f"{GRANTS_MAX} grants of this chat are in force; revoke some")


async def make_grant(run: Run, gate: GateState, answer: ApprovalAnswer, caller: Identity) -> agent_pb2.GrantMake | None:
    """Make what all who have approved have granted, this answer being the last one; None where one has not."""
    wishes = [(vote.grant, vote.grant_ms) for vote in gate.votes] + [(answer.grant, answer.grant_ms)]
    if answer.decision != "approve" or not all(scope for scope, _ in wishes):
        return None
    tool = (await gate.wait_for_call()).tool
    is_for_run = any(scope == FOR_RUN for scope, _ in wishes)
    opened = gate.opened
    return agent_pb2.GrantMake(
        grant_id=ids.grant_id(run.id, gate.gate_id),
        gate_id=gate.gate_id,
        scope=FOR_RUN if is_for_run else FOR_CHAT,
        tool_name=opened.tool_name,
        grounds=opened.grounds,
        risk=opened.risk,
        answerers=opened.answerers if opened.HasField("answerers") else None,
        made_by=[*(vote.by for vote in gate.votes), caller.user],
        tool_sha256=hash_tool(tool) if tool is not None else None,
        expires_at=None if is_for_run else now_ms() + min(ms for _, ms in wishes),
    )
