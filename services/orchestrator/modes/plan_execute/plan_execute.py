"""PLAN_EXECUTE: a plan, its tasks as the agent's strategy goes through them, then one streamed answer."""

from __future__ import annotations

from services.orchestrator.agents import prompts
from services.orchestrator.calls.planning import ADD, RESTATE
from services.orchestrator.modes.oneshot import final_answer
from services.orchestrator.modes.plan_execute.plan_runner import Work
from services.orchestrator.modes.plan_execute.planner import Planner
from services.orchestrator.modes.plan_execute.strategies.parallel import parallel
from services.orchestrator.modes.plan_execute.strategies.recursive import recursive
from services.orchestrator.modes.plan_execute.strategies.sequential import sequential
from services.orchestrator.modes.plan_execute.task import OutOfCalls
from services.orchestrator.run.plan.active_plan import Planned
from services.orchestrator.turn.conversation import Conversation

STRATEGIES = {"SEQUENTIAL": sequential, "PARALLEL": parallel, "RECURSIVE": recursive}


async def plan_execute(talk: Conversation) -> str:
    """Run to the answer; returns the finish reason. `talk` has the tools that tasks may use."""
    scope = talk.scope
    section = scope.agent.plan_execute
    assert section is not None, "the mode has its section"
    planned = scope.planned = Planned(scope)
    tools = [ADD, RESTATE] if section.strategy == "RECURSIVE" else [ADD]
    planning = Conversation(scope, talk.peers, tools)
    planner = Planner(planning, planned, scope.settings)
    work = Work(talk, planned, planner)
    try:
        work.thought = await planner.plan(deep_thinking=section.plan.deep_thinking)
        await STRATEGIES[section.strategy](work)
    except OutOfCalls:
        pass  # the answer is granted one call more
    await planned.drop(planned.plan.open())
    return await _sum_up(planning, planned)


async def _sum_up(talk: Conversation, planned: Planned) -> str:
    """The answer, in one turn without tools."""
    scope = talk.scope
    scope.stage = "execute"
    await scope.add_user_message(prompts.stored("summary"))
    scope.enter(scope.agent.settings("summary"), **planned.values())
    return await final_answer(talk)
