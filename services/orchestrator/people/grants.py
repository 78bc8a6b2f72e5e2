"""Grants: approvals that also cover later calls of the same kind, in the run or the chat.

All approvers create a grant together, with the last answer. Memory is asked for current grants before a person is
asked, because other runs create grants and people revoke them. A grant's use is logged before the call begins, so that
an owner that takes the run over follows it.
"""

from __future__ import annotations

import hashlib

import structlog

from headrace.errors import HeadraceError, InvalidRequest, PermissionDenied, QueueFull
from headrace.v1 import agent_pb2, common_pb2, gates_pb2, tools_pb2
from services.orchestrator import ids
from services.orchestrator.people.access import is_named
from services.orchestrator.people.approvals import ApprovalAnswer
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.approvals.rules import RISKS, Risk
from services.orchestrator.run.approvals.verdict import Verdict
from services.orchestrator.run.control.gates import Gate
from services.orchestrator.run.run import Run
from services.orchestrator.run.scope import Scope
from services.runtime.auth.access import REQUESTER
from services.runtime.auth.identity import Identity, acting_as
from services.runtime.clock import now_ms

FOR_RUN, FOR_CHAT = "run", "chat"

GRANTS_MAX = 64
"""Maximum active grants of a chat."""

log = structlog.get_logger()


def has_used_grant(scope: Scope, call: Call) -> bool:
    """Return whether an earlier owner of the run let the call run by a grant, even if that has since ended."""
    return any(use.tool_id == call.tool_id for use in scope.run.restored.find_payloads("grant_use"))


async def use_grant(scope: Scope, call: Call, found: Verdict) -> bool:
    """Return whether a grant covers a call that the rules ask about; if so, log the grant's use."""
    if not found.grounds:
        return False
    try:
        grants = await list_grants(scope.run)
        # A grant belongs to the user it was given to, even if this run's user approved it.
        own = (grant for grant in grants if grant.requester == scope.run.identity.user)
        grant = next((grant for grant in own if covers(grant, scope.run.id, call.name, found)), None)
        if grant is None or not await _is_same_tool(scope.run, grant, call):
            return False
    except HeadraceError as error:
        log.warning("grants not known, so a person is asked", run_id=scope.run.id, reason=error.reason)
        return False
    use = agent_pb2.GrantUse(grant_id=grant.grant_id, tool_id=call.tool_id, tool_name=call.name, grounds=found.grounds)
    await scope.record(use)
    return True


async def list_grants(run: Run) -> list[gates_pb2.Grant]:
    """List the active grants of the run's chat, oldest first."""
    request = gates_pb2.ListGrantsRequest(chat_id=run.chat_id, page_size=GRANTS_MAX)
    with acting_as(run.identity):
        return list((await run.services.peers.memory.ListGrants(request)).grants)


def hash_tool(tool: tools_pb2.Tool) -> str:
    """Return the hash of the tool's definition, which its server may change under the same name."""
    approved = tools_pb2.Tool(
        description=tool.description, parameters=tool.parameters, kind=tool.kind, effect=tool.effect
    )
    return hashlib.sha256(approved.SerializeToString(deterministic=True)).hexdigest()


async def _is_same_tool(run: Run, grant: gates_pb2.Grant, call: Call) -> bool:
    """Return whether the tool is still the approved one, both as the model sees it and as its server offers it now."""
    if not grant.tool_sha256:  # of an earlier version
        return True
    request = tools_pb2.ListToolsRequest(names=[call.name])
    reply = await run.services.peers.tools.ListTools(request)
    offered = (tool for tool in reply.tools if tool.name.casefold() == call.name.casefold())
    return all(tool is not None and hash_tool(tool) == grant.tool_sha256 for tool in (call.tool, *offered))


def covers(grant: gates_pb2.Grant, run_id: str, tool_name: str, found: Verdict) -> bool:
    """Return whether the grant covers the call: no further grounds, no graver risk, and the same answerers."""
    if grant.scope == FOR_RUN and grant.run_id != run_id:
        return False
    if grant.tool_name.casefold() != tool_name.casefold() or not {*found.grounds} <= {*grant.grounds}:
        return False
    if _rank(found.risk) < _rank(grant.risk):
        return False
    return _name_rule(grant.answerers) == _name_rule(found.answerers or common_pb2.Answerers())


def _rank(risk: str) -> int:
    """Return the risk's position, gravest first; unknown risks of later versions are graver than all."""
    risks: tuple[Risk, ...] = RISKS
    return next((place for place, known in enumerate(risks) if known == risk), -1)


def _name_rule(rule: common_pb2.Answerers) -> tuple[frozenset[str], bool, int]:
    return frozenset(rule.any_of or (REQUESTER,)), rule.not_requester, rule.count or 1


async def check_grant(run: Run, gate: Gate, answer: ApprovalAnswer, caller: Identity) -> None:
    """Refuse an answer with a grant that the caller may not make.

    Raises:
        InvalidRequest: This approval covers only its call.
        PermissionDenied: The gate was delegated to the caller, whom its own rule does not name.
        QueueFull: The chat has too many grants.
    """
    if not answer.grant:
        return
    if not gate.opened.grounds:
        raise InvalidRequest.of("payload.grant", "is not for this approval, which is about its call alone")
    if not is_named(gate.opened.answerers, run.identity, caller):
        why = "it was passed on to you, so you may answer it, and grant nothing for later calls"
        raise PermissionDenied(f"you may not grant this: {why}", gateId=gate.gate_id)
    if len(await list_grants(run)) >= GRANTS_MAX:
        raise QueueFull(f"{GRANTS_MAX} grants of this chat are in force; revoke some")


async def make_grant(run: Run, gate: Gate, answer: ApprovalAnswer, caller: Identity) -> agent_pb2.GrantMake | None:
    """Create the grant that all approvers have requested, with this answer as the last; None if one did not."""
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
