"""Plans of earlier tasks: kept once their run is complete, and offered to the planner of a similar one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import structlog

from headrace.errors import HeadraceError
from headrace.v1 import memory_pb2
from services.orchestrator.agents import prompts
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.run import Run
from services.orchestrator.run.scope import Scope

QUESTION_CHARS_MAX, TASKS_CHARS_MAX = 500, 1500
"""Maximum characters kept of a question, and of its tasks together; in any script they fit in one fact."""

DONE = frozenset({"completed", "skipped"})

log = structlog.get_logger()


async def remember_plan(run: Run, peers: Peers) -> None:
    """Store the plan of a completed run, if the agent recalls plans and every task was done."""
    tasks = _list_done(run)
    if not tasks or not (question := _read_question(run)):
        return
    request = memory_pb2.RememberRequest(
        text=f"{question}\n{chr(10).join(tasks)[:TASKS_CHARS_MAX]}",
        scope="plan",
        agent_key=run.agent.key,
        source=memory_pb2.FactSource(chat_id=run.chat_id, run_id=run.id),
        request_id=f"{run.id} plan",
    )
    await peers.memory.Remember(request)


@asynccontextmanager
async def offering_plan(scope: Scope, peers: Peers) -> AsyncGenerator[None]:
    """Add the plan of the user's most similar task, if any, to the requests made within the block."""
    scope.attention.past_plan = await _recall_plan(scope, peers)
    try:
        yield
    finally:
        scope.attention.past_plan = ""


async def _recall_plan(scope: Scope, peers: Peers) -> str:
    run = scope.run
    is_new_question = scope is run.main and not run.past.reason
    question = _read_question(run)
    if not _recalls_plans(run) or not is_new_question or not question:
        return ""
    request = memory_pb2.RecallFactsRequest(query=question, scope="plan", agent_key=run.agent.key, limit=1)
    try:
        hits = (await peers.memory.RecallFacts(request)).hits
    except HeadraceError as error:
        log.warning("plan not recalled", run_id=run.id, reason=error.reason)
        return ""
    if not hits:
        return ""
    tasks = hits[0].fact.text.split("\n")[1:]
    numbered = "\n".join(f"{number}. {task}" for number, task in enumerate(tasks, start=1))
    return prompts.fill_placeholders(prompts.load_text("past_plan"), {"tasks": numbered})


def _recalls_plans(run: Run) -> bool:
    section = run.agent.plan_execute
    return section is not None and section.recall_plans


def _read_question(run: Run) -> str:
    return " ".join(run.query.message[:QUESTION_CHARS_MAX].split())


def _list_done(run: Run) -> list[str]:
    """List the plan's top-level tasks; none unless all tasks are done."""
    planned = run.main.planned
    if planned is None or not _recalls_plans(run) or any(task.status not in DONE for task in planned.plan.tasks):
        return []
    done = [task for task in planned.plan.tasks if task.status == "completed" and not task.parent_task_id]
    return [" ".join(task.description.split()) for task in done]
