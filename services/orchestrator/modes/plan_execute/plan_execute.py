"""PLAN_EXECUTE: a plan, its tasks in the strategy's order, then one streamed answer."""

from __future__ import annotations

from headrace.errors import InvalidRequest
from services.orchestrator.agents import prompts
from services.orchestrator.calls.own_tools.planning import ADD, RESTATE
from services.orchestrator.modes.limits import OutOfCalls
from services.orchestrator.modes.oneshot import ask_for_final_answer
from services.orchestrator.modes.plan_execute.plan_runner import PlanRunner
from services.orchestrator.modes.plan_execute.planner import Planner
from services.orchestrator.modes.plan_execute.strategies.parallel import run_parallel
from services.orchestrator.modes.plan_execute.strategies.recursive import run_recursive
from services.orchestrator.modes.plan_execute.strategies.sequential import run_sequential
from services.orchestrator.run.plan.active_plan import ActivePlan
from services.orchestrator.setup.file_values import load_file_values
from services.orchestrator.turn.conversation import Conversation

STRATEGIES = {"SEQUENTIAL": run_sequential, "PARALLEL": run_parallel, "RECURSIVE": run_recursive}


async def run_plan_execute(talk: Conversation) -> str:
    """`talk` has the tools that tasks may use."""
    scope = talk.scope
    section = scope.agent.plan_execute
    assert section is not None, "the mode has its section"
    if scope is scope.run.main and scope.run.query.tool_choice not in ("", "auto"):
        raise InvalidRequest.of("toolChoice", "must be auto for an agent that plans: its tasks choose their tools")
    planned = ActivePlan(scope.run.id, scope.run.chat_id, scope.recording, scope.record)
    scope.follow_plan(planned)
    tools = [ADD, RESTATE] if section.strategy == "RECURSIVE" else [ADD]
    planning = Conversation(scope, talk.peers, tools)
    planner = Planner(planning, planned, scope.settings)
    work = PlanRunner(talk, planned, planner)
    reason = ""
    try:
        work.thought = await planner.make_plan(deep_thinking=section.plan.deep_thinking)
        await STRATEGIES[section.strategy](work)
    except OutOfCalls:
        reason = "budget"
    await planned.drop(planned.plan.open())
    scope.log_steps_as("execute")
    await scope.add_user_message(prompts.load_text("summary"))
    settings = scope.agent.stage_settings("summary")
    scope.enter(settings, **planned.values(), **await load_file_values(scope, talk.peers, settings))
    return await ask_for_final_answer(planning, "budget" if work.is_cut else reason)
