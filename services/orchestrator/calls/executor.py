"""Executes the calls of one answer.

A failed tool is a value for the model; each call that does not run gets a result that says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from headrace.v1 import tools_pb2
from services.orchestrator import tracing
from services.orchestrator.calls import action, backend, frontend, gate, outcomes, own
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.scope import Scope
from services.runtime.telemetry import spans

Execute = Callable[[Scope, Peers, Call], Awaitable[tools_pb2.ToolOutcome]]

KINDS: dict[str, Execute] = {
    "backend": backend.execute_backend,
    "action": action.execute_action,
    "frontend": frontend.execute_frontend,
    "own": own.execute_own,
}
"""Tools of other kinds are not offered to a model."""

OVER_BUDGET = "the budget of tool calls is used up"


async def execute_all(scope: Scope, peers: Peers, calls: list[Call], warning: str = "") -> None:
    """Run `calls` together; the first error that is no tool's own cancels the others and is raised bare."""
    for call in calls:
        call.siblings = len(calls)
    with scope.run.spending.clock.aside():
        if len(calls) == 1:
            await _execute_call(scope, peers, calls[0], warning)
            return
        try:
            async with asyncio.TaskGroup() as group:
                for call in calls:
                    group.create_task(_execute_call(scope, peers, call, warning))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors


async def recall_result(scope: Scope, peers: Peers, call: Call) -> bool:
    """Return whether the log has the result; it then counts as if just run."""
    found = scope.recording.result(call.call_id)
    if found is None:
        return False
    text = "".join(part.text for part in found.message.content)
    scope.has_result(call)
    scope.recall_result(found)
    if not outcomes.is_refusal(text):
        scope.run.spending.reserve_tool_calls(1)
        if call.kind == "own":
            await own.recall_call(scope, peers, call, text)
    if found.ok:
        scope.tools.note(call.name, text)
    return True


def was_refused_for_budget(scope: Scope, calls: Iterable[Call]) -> bool:
    refusal = outcomes.make_refusal(OVER_BUDGET).result
    results = filter(None, (scope.recording.result(call.call_id) for call in calls))
    return any(part.text == refusal for result in results for part in result.message.content)


async def refuse_call(scope: Scope, call: Call, why: str) -> None:
    outcome = outcomes.make_refusal(why)
    await scope.commit([scope.result(call, outcome.result, ok=False)])


async def _execute_call(scope: Scope, peers: Peers, call: Call, warning: str) -> None:
    with scope.run.spending.clock.working(), tracing.start_tool_span(call) as span:
        if call.kind != "own":
            scope.run.control.go_live()
        passed = await gate.check_gate(scope, call)
        outcome = passed.outcome or await KINDS[call.kind](scope, peers, call)
        if not outcome.ok:
            spans.mark_failed(span, tracing.TOOL_FAILED)
    if outcome.ok:
        scope.tools.note(call.name, outcome.result)
    notes = [f"[{note}]" for note in (passed.note, warning) if note]
    text = "\n\n".join([outcome.result, *notes])
    await scope.commit([scope.result(call, text, outcome.ok)])
