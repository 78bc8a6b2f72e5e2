"""PLAN_EXECUTE: a plan, its tasks in the strategy's order, then one streamed answer."""

from __future__ import annotations

from headrace.errors import InvalidRequest
from services.orchestrator.agents import prompts
from services.orchestrator.mode_api.limits import OutOfCalls
from services.orchestrator.mode_api.mode_run import ModeRun
from services.orchestrator.mode_api.plan import ADD, RESTATE
from services.orchestrator.modes.plan_execute.plan_runner import PlanRunner
from services.orchestrator.modes.plan_execute.planner import Planner
from services.orchestrator.modes.plan_execute.strategies.parallel import run_parallel
from services.orchestrator.modes.plan_execute.strategies.recursive import run_recursive
from services.orchestrator.modes.plan_execute.strategies.sequential import run_sequential

STRATEGIES = {"SEQUENTIAL": run_sequential, "PARALLEL": run_parallel, "RECURSIVE": run_recursive}


async def run_plan_execute(mode: ModeRun) -> str:
    """`mode` has the tools that tasks may use."""
    section = mode.agent.plan_execute
    assert section is not None, "the mode has its section"
    if mode.wanted_choice not in ("", "auto"):
        raise InvalidRequest.of("toolChoice", "must be auto for an agent that plans: its tasks choose their tools")
    planned = mode.begin_plan()
    planning = mode.with_tools([ADD, RESTATE] if section.strategy == "RECURSIVE" else [ADD])
    planner = Planner(planning, planned, mode.settings)
    work = PlanRunner(mode, planned, planner)
    reason = ""
    try:
        work.thought = await planner.make_plan(deep_thinking=section.plan.deep_thinking)
        await STRATEGIES[section.strategy](work)
    except OutOfCalls:
        reason = "budget"
    await planned.drop(planned.plan.open())
    mode.log_steps_as("execute")
    await mode.add_message(prompts.load_text("summary"))
    await mode.enter(mode.agent.stage_settings("summary"), **planned.values())
    return await planning.ask_for_final_answer("budget" if work.is_cut else reason)
