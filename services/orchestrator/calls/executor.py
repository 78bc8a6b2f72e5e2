"""Executes the calls of one answer.

A failed tool is a value for the model; each call that does not run gets a result that says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

from headrace.v1 import tools_pb2
from services.orchestrator import tracing
from services.orchestrator.calls import action, backend, frontend, outcomes, permission, shown_media
from services.orchestrator.calls.own_tools import catalogue
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.answers import arguments
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.scope import Scope
from services.runtime.telemetry import spans

Warn: TypeAlias = Callable[[Call, tools_pb2.ToolOutcome], str]
"""Returns a note for the model behind a call's result; empty for none."""

Execute = Callable[[Scope, Peers, Call], Awaitable[tools_pb2.ToolOutcome]]

KINDS: dict[str, Execute] = {
    "backend": backend.execute_backend,
    "action": action.execute_action,
    "frontend": frontend.execute_frontend,
    "own": catalogue.execute_own,
}
"""Tools of other kinds are not offered to a model. All but `backend` get arguments that have been checked."""

OVER_BUDGET = "the budget of tool calls is used up"


async def execute_all(scope: Scope, peers: Peers, calls: list[Call], warn: Warn | None = None) -> None:
    """Run `calls` together; the first error that is no tool's own cancels the others and is raised bare."""
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
    """Return whether the log has the result; it then counts as if just run."""
    found = scope.recording.result(call.call_id)
    if found is None:
        return False
    text = "".join(part.text for part in found.message.content)
    scope.close_call(call)
    call.result, call.ok = text, found.ok
    scope.recall_result(found)
    if not outcomes.is_refusal(text):
        scope.run.spending.reserve_tool_calls(1)
        if call.kind == "own":
            await catalogue.recall_call(scope, peers, call, text)
    if found.ok:
        scope.tools.note(call.name, text)
    return True


def was_refused_for_budget(scope: Scope, calls: Iterable[Call]) -> bool:
    refusal = outcomes.make_refusal(OVER_BUDGET).result
    results = filter(None, (scope.recording.result(call.call_id) for call in calls))
    return any(part.text.startswith(refusal) for result in results for part in result.message.content)


async def refuse_call(scope: Scope, call: Call, why: str) -> None:
    text = outcomes.add_notes(outcomes.make_refusal(why).result, call.note)
    await scope.commit([scope.result(call, text, ok=False)])


async def _execute_call(scope: Scope, peers: Peers, call: Call, warn: Warn | None) -> None:
    with scope.run.spending.clock.working(), tracing.start_tool_span(call) as span:
        if call.kind != "own":
            scope.run.control.go_live()
        passed = await permission.check_permission(scope, call)
        outcome = passed.outcome or await _run_tool(scope, peers, call)
        if not outcome.ok:
            spans.mark_failed(span, tracing.TOOL_FAILED)
    if outcome.ok:
        scope.tools.note(call.name, outcome.result)
    warning = "" if warn is None else warn(call, outcome)
    text = outcomes.add_notes(outcome.result, passed.note, call.note, warning)
    media = call.media or await shown_media.load_media(scope, peers, outcome)
    await scope.commit([scope.result(call, text, outcome.ok, media)])


async def _run_tool(scope: Scope, peers: Peers, call: Call) -> tools_pb2.ToolOutcome:
    # The tools service checks the arguments of its own.
    if call.kind != "backend" and (problem := arguments.violation(call)):
        return outcomes.make_failure("INVALID_ARGUMENTS", problem)
    return await KINDS[call.kind](scope, peers, call)
