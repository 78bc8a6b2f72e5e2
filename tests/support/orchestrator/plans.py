"""A scripted model that plans, works on tasks and sums up, and queries about its runs' events."""

import json
from collections.abc import Callable
from typing import Any, TypeAlias

from headrace.v1 import llm_pb2
from tests.support.orchestrator.requests import assert_paired
from tests.support.orchestrator.steps import Step, answer, call, call_tool, content, finish, reasoning
from tests.support.orchestrator.suite import Suite
from tests.support.order import Event

Reply: TypeAlias = Callable[[llm_pb2.ChatRequest], list[Step]]

STRATEGIES = ("SEQUENTIAL", "PARALLEL", "RECURSIVE")
PLAN, EXECUTE, SUMMARY = "You plan.", "You work on {{task_id}}.", "You sum up."


def agent(strategy: str = "SEQUENTIAL", *, deep: bool = False, **changes: Any) -> dict[str, Any]:
    section = {
        "strategy": strategy,
        "plan": {"systemPrompt": PLAN, "deepThinking": deep},
        "execute": {"systemPrompt": EXECUTE},
        "summary": {"systemPrompt": SUMMARY},
    }
    return {"mode": "PLAN_EXECUTE", "planExecute": section | changes}


def text_of(message: llm_pb2.Message) -> str:
    return "".join(part.text for part in message.content)


def last_text(request: llm_pb2.ChatRequest) -> str:
    return text_of(request.messages[-1])


def system(request: llm_pb2.ChatRequest) -> str:
    return text_of(request.messages[0])


def add(*tasks: Any, call_id: str = "plan_1") -> list[Step]:
    given = [{"description": task} if isinstance(task, str) else task for task in tasks]
    return call_tool("_plan_add_tasks_", json.dumps({"tasks": given}), call_id=call_id)


def update(request: llm_pb2.ChatRequest, status: str = "completed") -> list[Step]:
    return call_tool("_plan_update_task_", json.dumps({"taskId": task_id(request), "status": status}), call_id="up")


def restate(*tasks: dict[str, Any]) -> list[Step]:
    thought = content("so much is left")
    return [
        *thought,
        *call("_plan_restate_tasks_", json.dumps({"tasks": list(tasks)}), call_id="restate"),
        *finish("tool_calls"),
    ]


def task_id(request: llm_pb2.ChatRequest) -> str:
    """Return the id of the task that the request works on."""
    return system(request).removeprefix("You work on ")[:8]


def task_of(request: llm_pb2.ChatRequest) -> str:
    """Return the description of the task that the request works on."""
    prompts = [text_of(message) for message in request.messages if text_of(message).startswith("Your task ")]
    return prompts[-1].partition(": ")[2].partition("\n")[0]


def model(
    plan: list[Step], *, work: Reply | None = None, report: Reply = update, planner: Reply | None = None
) -> Reply:
    """Return a model that plans once, does each task in one turn, reports its status and sums up, or as given.
    Its answers depend only on the request, so a repeated request gets the same answer.
    """

    def reply(request: llm_pb2.ChatRequest) -> list[Step]:
        if request.stage == "plan":
            return planner(request) if planner and last_text(request) != "hello" else plan
        if request.stage == "summary":
            return answer("the ", "answer")
        if request.tool_choice == "_plan_update_task_":
            return report(request)
        return work(request) if work else answer(f"did {task_of(request)}")

    return reply


async def ask_checked(suite: Suite, reply: Reply, **fields: Any) -> list[Event]:
    suite.llm.reply = reply
    events = await suite.ask(**fields)
    check_pairs(suite)
    return events


def check_pairs(suite: Suite) -> None:
    """Assert that every call in every request has its result."""
    for request in suite.llm.requests:
        assert_paired(request)


def outline(events: list[Event]) -> list[str]:
    """Return task and terminal events in short, with the tasks' descriptions."""
    names: dict[str, str] = {}
    lines: list[str] = []
    for event in events:
        kind = event["type"]
        if kind.startswith("plan."):
            names |= {task["taskId"]: task["description"] for task in event["plan"]}
        if kind.startswith("task."):
            lines.append(f"{kind.removeprefix('task.')} {names[event['taskId']]}")
        elif kind in ("run.complete", "run.cancel", "run.error"):
            lines.append(kind)
    return lines


def plan_of(events: list[Event]) -> dict[str, str]:
    """Return the last plan's statuses by description, in order."""
    plans = [event["plan"] for event in events if event["type"].startswith("plan.")]
    return {task["description"]: task["status"] for task in plans[-1]}


def busy(request: llm_pb2.ChatRequest) -> list[Step]:
    """Work in two turns: first with a tool, then without."""
    if request.messages[-1].role == "user":
        return [*reasoning("hm"), *content("looking"), *call("look"), *finish("tool_calls")]
    return answer("did")


def busy_planner(request: llm_pb2.ChatRequest) -> list[Step]:
    text = last_text(request)
    if text == "and then?":  # The next query of the chat.
        return add("once more")
    if "_plan_restate_tasks_" in text:
        open_tasks = [line for line in text.splitlines() if line.startswith("- ")]
        return restate(*({"taskId": line[2:10], "description": line[12:]} for line in open_tasks))
    if "is to be split" in text:
        return add("half", call_id="half")
    return answer("that is all")


def busy_model() -> Reply:
    tasks = [{"description": "one", "group": "a", "composite": True}, {"description": "two", "group": "a"}]
    return model(add(*tasks), work=busy, planner=busy_planner)
