"""Executes the calls of one answer: each is permitted, refused, or submitted for a person's approval, and then run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from headrace.v1 import agent_pb2, tools_pb2
from services.orchestrator import tracing
from services.orchestrator.calls import backend, results
from services.orchestrator.calls.own_tools import catalogue
from services.orchestrator.calls.own_tools.catalogue import NAMES
from services.orchestrator.calls.results import add_notes, is_refusal, load_media, make_failure, make_refusal
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.people import approvals
from services.orchestrator.people.forms import ASK_HUMAN, Question, ask_for_result
from services.orchestrator.people.grants import has_used_grant, use_grant
from services.orchestrator.run.answers.call import Call, violation
from services.orchestrator.run.approvals.verdict import verdict
from services.orchestrator.run.scope import Scope, find_grants


async def execute_action(scope: Scope, peers: Peers, call: Call) -> tools_pb2.ToolOutcome:
    param = scope.publish(agent_pb2.ActionParam(action_id=call.tool_id, param=call.effective))
    call.param_seq = param.seq
    return tools_pb2.ToolOutcome(ok=True, result="OK")


@dataclass(frozen=True, slots=True)
class Permission:
    outcome: tools_pb2.ToolOutcome | None = None
    """None when the call runs."""

    note: str = ""


async def check_permission(scope: Scope, call: Call) -> Permission:
    # It may have been granted when the model was shown it.
    grants = find_grants(scope)
    is_free = call.kind == "own" or call.is_programs or call.name.casefold() in NAMES
    if not (grants is None or is_free or grants.allows_tool(call.name)):
        return Permission(results.make_refusal("denied", message="the operator grants this agent no such tool"))
    if call.kind == "own" or has_used_grant(scope, call):
        return Permission()
    found = await verdict(scope.run.rules, call)
    # A rule changed since then applies to the next question; someone may have answered this one.
    has_asked = approvals.has_asked(scope, call, approvals.PERMISSION)
    if found.then == "allow" and not has_asked:
        return Permission()
    if found.then == "deny" and not has_asked:
        return Permission(results.make_refusal("denied", message=f"not allowed here: {found.reason}"))
    if not has_asked and await use_grant(scope, call, found):
        return Permission()
    answer = await approvals.ask_person(scope, call, found)
    if answer.decision == "reject":
        return Permission(results.make_refusal("rejected", message=answer.note or "a person rejected this call"))
    if answer.decision == "edit":
        call.params = answer.arguments
        changed = f"a person changed the arguments before this ran: {answer.arguments}"
        return Permission(note=f"{changed}; {answer.note}" if answer.note else changed)
    return Permission(note=f"a person approved this call and says: {answer.note}" if answer.note else "")


async def execute_frontend(scope: Scope, peers: Peers, call: Call) -> tools_pb2.ToolOutcome:
    submission = await ask_for_result(scope, call)
    if submission is not None:
        return tools_pb2.ToolOutcome(ok=True, result=results.truncate_result(_read_text(submission.payload)))
    if call.name.casefold() == ASK_HUMAN:
        question = msgspec.json.decode(call.effective, type=Question)
        if question.default and not question.required:
            return results.make_success(answer=question.default, expired=True)
    return results.make_failure("expired")


def _read_text(payload: str) -> str:
    """Return the submission's text if it is a JSON string, which models read better without escapes, else the JSON."""
    if not payload.startswith('"'):
        return payload
    try:
        return msgspec.json.decode(payload, type=str)
    except msgspec.DecodeError:
        return payload


Warn: TypeAlias = Callable[[Call, tools_pb2.ToolOutcome], str]
"""Returns a note for the model to append to a call's result; empty for none."""

Execute = Callable[[Scope, Peers, Call], Awaitable[tools_pb2.ToolOutcome]]

KINDS: dict[str, Execute] = {
    "backend": backend.execute_backend,
    "action": execute_action,
    "frontend": execute_frontend,
    "own": catalogue.execute_own,
}
"""Tools of other kinds are not offered to a model. All but `backend` receive validated arguments."""

OVER_BUDGET = "the budget of tool calls is used up"


async def execute_all(scope: Scope, peers: Peers, calls: list[Call], warn: Warn | None = None) -> None:
    """Run `calls` concurrently. The first error that is not a tool's result cancels the others and is raised bare."""
    for call in calls:
        call.siblings = len(calls)
    with scope.run.spending.clock.aside():
        if len(calls) == 1:
            await _execute_call(scope, peers, calls[0], warn)
            return
        try:
            async with asyncio.TaskGroup() as group:
                for call in calls:
                    group.create_task(_execute_call(scope, peers, call, warn))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors


async def recall_result(scope: Scope, peers: Peers, call: Call) -> bool:
    """Return whether the log has the result; if so, it counts as if the call had just run."""
    found = scope.restored.result(call.call_id)
    if found is None:
        return False
    text = "".join(part.text for part in found.message.content)
    scope.close_call(call)
    call.result, call.ok = text, found.ok
    if not is_refusal(text):
        scope.run.spending.reserve_tool_calls(1)
        if call.kind == "own":
            await catalogue.recall_call(scope, peers, call, text)
    if found.ok:
        _note_success(scope, call, text)
    return True


def was_refused_for_budget(scope: Scope, calls: Iterable[Call]) -> bool:
    refusal = make_refusal(OVER_BUDGET).result
    results = filter(None, (scope.restored.result(call.call_id) for call in calls))
    return any(part.text.startswith(refusal) for result in results for part in result.message.content)


async def refuse_call(scope: Scope, call: Call, why: str) -> None:
    text = add_notes(make_refusal(why).result, call.note)
    await scope.commit([scope.result(call, text, ok=False)])


async def _execute_call(scope: Scope, peers: Peers, call: Call, warn: Warn | None) -> None:
    with scope.run.spending.clock.working(), tracing.start_tool_span(call) as span:
        if call.kind != "own":
            scope.run.control.go_live()
        passed = await check_permission(scope, call)
        outcome = passed.outcome
        # The tools service checks the arguments of its own.
        if outcome is None and call.kind != "backend" and (problem := violation(call)):
            outcome = make_failure("INVALID_ARGUMENTS", problem)
        if outcome is None:
            outcome = await KINDS[call.kind](scope, peers, call)
        tracing.mark_tool_end(span, outcome)
    if outcome.ok:
        _note_success(scope, call, outcome.result)
    warning = "" if warn is None else warn(call, outcome)
    text = add_notes(outcome.result, passed.note, call.note, warning)
    media = call.media or await load_media(scope, peers, outcome)
    await scope.commit([scope.result(call, text, outcome.ok, media)])


def _note_success(scope: Scope, call: Call, result: str) -> None:
    scope.tools.note(call.name, result)
    scope.attention.note_call(call.effective)
