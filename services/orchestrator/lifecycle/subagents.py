"""Runs sub-agents, each in its own scope.

A failure is a value for the caller's model; a cancel or an exhausted budget ends the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import structlog

from headrace.errors import BudgetExceeded, ContentFiltered, HeadraceError, StaleLease, to_failure
from headrace.run_states import State
from headrace.v1 import agent_pb2, memory_pb2, tools_pb2
from services.orchestrator import tracing
from services.orchestrator.agents import prompts
from services.orchestrator.agents.definition import Definition
from services.orchestrator.agents.definition.sections import React
from services.orchestrator.calls import results
from services.orchestrator.calls.own_tools import planning, subagent
from services.orchestrator.ids import subagent_id
from services.orchestrator.mode_api.answering import STEPS_LIMIT
from services.orchestrator.mode_api.mode_run import ModeRun
from services.orchestrator.mode_api.turns import CALL_LIMITS
from services.orchestrator.modes.catalogue import RUNNERS
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.control.state import Stopped
from services.orchestrator.run.scope import Scope
from services.orchestrator.run.scope_parts import SubagentTask
from services.orchestrator.setup import system_message
from services.orchestrator.setup.tool_selection import load_catalogue, select_tools
from services.orchestrator.turn import context
from services.orchestrator.turn.conversation import Conversation

SUMMARY_CHARS_MAX = 500

OPEN_RESULT = '{"ok":false,"error":"interrupted"}'

SAME_TOOLS = frozenset({planning.WRITE_TODOS.name, planning.READ_TODOS.name, subagent.NAME})

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _SubagentResult:
    text: str = ""
    error: HeadraceError | None = None
    is_cancelled: bool = False

    @property
    def line(self) -> memory_pb2.RunLine:
        if self.error is not None:
            return memory_pb2.RunLine(state=State.FAILED, error=to_failure(self.error))
        return memory_pb2.RunLine(state=State.CANCELLED if self.is_cancelled else State.COMPLETED)


async def run_subagent(parent: Scope, peers: Peers, call: Call, task: SubagentTask) -> tools_pb2.ToolOutcome:
    """Run the task and return the call's result.

    Raises:
        BudgetExceeded: A budget of the run, other than that of calls, is spent.
        ProviderUnavailable: The tools service, which the agent needs, is unavailable.
    """
    async with parent.subagent_places:
        scope = await _open_scope(parent, call, task)
        # Without the tools service the work cannot be done, and the parent would continue as if it had been.
        tools = await _select_tools(scope, parent, peers, is_like_parent=task.agent is None)
        try:
            with tracing.start_subagent_span(scope):
                end = await _run_mode(scope, parent, peers, task, tools)
        except Stopped:
            # Its siblings finish their steps too; the run stops when the parent continues.
            end = _SubagentResult(is_cancelled=True)
        except HeadraceError as error:
            # Spent calls do not end the run, as it may still answer, nor do the steps of the agent's own mode.
            is_own_limit = error.metadata.get("limit") in (*CALL_LIMITS, STEPS_LIMIT)
            if isinstance(error, StaleLease) or (isinstance(error, BudgetExceeded) and not is_own_limit):
                raise
            log.warning("sub-agent failed", run_id=scope.run.id, subagent_id=scope.subagent_id, reason=error.reason)
            end = _SubagentResult(error=error)
        return await _report_result(scope, end, parent, call)


async def _open_scope(parent: Scope, call: Call, task: SubagentTask) -> Scope:
    run = parent.run
    agent = _limit_steps(task.agent or _make_default_agent(parent), task.loops_max)
    child_id = subagent_id(run.id, call.tool_id)
    scope = parent.open_subagent(agent, child_id)
    start = agent_pb2.SubagentStart(
        subagent_id=child_id,
        run_id=run.id,
        parent_id=parent.subagent_id or run.id,
        agent_key=agent.key,
        depth=scope.depth,
        goal=task.task,
    )
    await scope.record_start(
        start,
        lambda line: agent_pb2.SubagentEnd(subagent_id=child_id, ok=False, summary=line.error.message or line.state),
    )
    return scope


async def _run_mode(
    scope: Scope, parent: Scope, peers: Peers, task: SubagentTask, tools: list[tools_pb2.Tool]
) -> _SubagentResult:
    await context.push(scope, parent, peers, task.task)
    scope.begin(await system_message.make_subagent_context(scope, peers, task.task, tools))
    await scope.add_user_message(task.task)
    reason = await RUNNERS[scope.agent.mode](ModeRun(Conversation(scope, peers, tools), task.task))
    if reason == "content_filter":
        raise ContentFiltered("the provider refused the sub-agent's answer")
    return _SubagentResult(scope.notes.last_text)


async def _report_result(scope: Scope, end: _SubagentResult, parent: Scope, call: Call) -> tools_pb2.ToolOutcome:
    run = scope.run
    fields: dict[str, Any] = {"contextId": scope.context_id, "loops": run.spending.answers[scope.subagent_id]}
    if end.error is None and not end.is_cancelled:
        summary = end.text[:SUMMARY_CHARS_MAX]
        await scope.record_end(agent_pb2.SubagentEnd(subagent_id=scope.subagent_id or "", ok=True, summary=summary))
        outcome = results.make_success(result=results.truncate_result(end.text), **fields)
    elif end.error is not None:
        outcome = results.make_failure(end.error.reason, end.error.message, **fields)
    else:
        outcome = results.make_failure("cancelled", **fields)
    if lines := run.scopes.close_family(scope, end.line, OPEN_RESULT):
        await run.log.append(lines)
    subagent.keep_result(parent, call, outcome.result)
    return outcome


async def _select_tools(scope: Scope, parent: Scope, peers: Peers, *, is_like_parent: bool) -> list[tools_pb2.Tool]:
    if not scope.agent.working.may_use_tools:
        return []
    if not is_like_parent:
        return await select_tools(scope, await load_catalogue(scope, peers), ())
    names = SAME_TOOLS if subagent.is_offered(scope) else SAME_TOOLS - {subagent.NAME}
    return [tool for tool in parent.tools.tools if tool.kind == "backend" or tool.name in names]


def _make_default_agent(parent: Scope) -> Definition:
    return parent.agent.model_copy(
        update={
            "mode": "REACT",
            "model_config_": parent.settings.model,
            "tool_policy": "ALLOW",
            "output": "PLAIN",
            "verify": "NONE",
            "skills": (),
            "react": React(system_prompt=prompts.load_text("subagent"), max_steps=subagent.LOOPS_MAX),
        }
    )


def _limit_steps(agent: Definition, steps_max: int) -> Definition:
    """Limit the agent's turns with tools; in a plan, per task."""
    sections: dict[str, object] = {}
    if agent.mode == "REACT" and agent.react is not None:
        steps = min(steps_max, agent.stage_settings("react").steps_max)
        sections["react"] = agent.react.model_copy(update={"max_steps": steps})
    elif agent.mode == "PLAN_EXECUTE" and agent.plan_execute is not None:
        steps = min(steps_max, agent.stage_settings("execute").steps_max)
        sections["plan_execute"] = agent.plan_execute.model_copy(update={"max_steps": steps})
    return agent.model_copy(update=sections)
