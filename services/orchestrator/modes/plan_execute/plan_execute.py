"""PLAN_EXECUTE: a plan, its tasks in the strategy's order, then one streamed answer."""

from __future__ import annotations

from services.orchestrator.agents import prompts
from services.orchestrator.calls.planning import ADD, RESTATE
from services.orchestrator.modes.oneshot import ask_for_final_answer
from services.orchestrator.modes.plan_execute.plan_runner import PlanRunner
from services.orchestrator.modes.plan_execute.planner import Planner
from services.orchestrator.modes.plan_execute.strategies.parallel import run_parallel
from services.orchestrator.modes.plan_execute.strategies.recursive import run_recursive
from services.orchestrator.modes.plan_execute.strategies.sequential import run_sequential
from services.orchestrator.modes.plan_execute.task import OutOfModelCalls
from services.orchestrator.run.plan.active_plan import ActivePlan
from services.orchestrator.turn.conversation import Conversation

STRATEGIES = {"SEQUENTIAL": run_sequential, "PARALLEL": run_parallel, "RECURSIVE": run_recursive}


async def run_plan_execute(talk: Conversation) -> str:
    """`talk` has the tools that tasks may use."""
    scope = talk.scope
    section = scope.agent.plan_execute
    assert section is not None, "the mode has its section"
    planned = ActivePlan(scope.run.id, scope.run.chat_id, scope.recording, scope.record)
    scope.follow_plan(planned)
    tools = [ADD, RESTATE] if section.strategy == "RECURSIVE" else [ADD]
    planning = Conversation(scope, talk.peers, tools)
    planner = Planner(planning, planned, scope.settings)
    work = PlanRunner(talk, planned, planner)
    try:
        work.thought = await planner.make_plan(deep_thinking=section.plan.deep_thinking)
        await STRATEGIES[section.strategy](work)
    except OutOfModelCalls:
        pass  # the answer is granted one call more
    await planned.drop(planned.plan.open())
    scope.log_steps_as("execute")
    await scope.add_user_message(prompts.load_text("summary"))
    scope.enter(scope.agent.stage_settings("summary"), **planned.values())
    return await ask_for_final_answer(planning)
