"""The simulated planner: a question becomes tasks, and the plan tools' prompts are answered as they ask."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.orchestrator.agents import prompts
from services.simulator.model.builtin import build_reply
from services.simulator.requests.model_request import ModelRequest
from services.simulator.scripts.steps import Content, ToolCall

ID = "0a1b2c3d"


def find_steps(text: str, *tools: str, run_up: str = "") -> list[Any]:
    """The steps of the answer to a question with these tools."""
    offered = {tool: frozenset[str]() for tool in tools}
    return list(
        build_reply(ModelRequest("sim-1", "", text, run_up, 1, (), offered, 1, stream=True, include_usage=True)).steps
    )


def prompt(name: str, **values: str) -> str:
    return prompts.fill_placeholders(
        prompts.load_text(name), {"task_id": ID, "task_description": "bake bread"} | values
    )


LEFT = f"- {ID}: bake\n- ffffffff: eat"


@pytest.mark.parametrize(
    ("text", "tool", "arguments"),
    [
        ("Plan a day: pack; go.", "_plan_add_tasks_", {"tasks": [{"description": "pack"}, {"description": "go"}]}),
        (
            "At home, at the same time: a; b",
            "_plan_add_tasks_",
            {"tasks": [{"description": part, "group": "together"} for part in "ab"]},
        ),
        (
            prompt("plan_split"),
            "_plan_add_tasks_",
            {"tasks": [{"description": "Begin to bake bread"}, {"description": "Finish to bake bread"}]},
        ),
        (prompt("task_update"), "_plan_update_task_", {"taskId": ID, "status": "completed"}),
        (
            prompt("plan_restate", remaining=LEFT),
            "_plan_restate_tasks_",
            {"tasks": [{"taskId": ID, "description": "bake"}, {"taskId": "ffffffff", "description": "eat"}]},
        ),
    ],
)
def test_a_plan_tool_is_called_where_its_prompt_asks_for_it(text: str, tool: str, arguments: dict[str, Any]) -> None:
    (call,) = find_steps(text, tool)
    assert isinstance(call, ToolCall)
    assert (call.tool_call, json.loads("".join(call.arguments))) == (tool, arguments)


def test_a_task_is_worked_on_alone_and_the_summary_has_its_result() -> None:
    work = prompt("task_work", task_list="- 1 [init] what is the weather in Rome", task_description="say hello")
    assert not [step for step in find_steps(work, "weather", "_plan_get_tasks_") if isinstance(step, ToolCall)]
    report = prompt("task_report", status="completed", result="fresh bread")
    (answer,) = find_steps(prompt("summary"), "_plan_add_tasks_", run_up=report)
    assert isinstance(answer, Content)
    assert "bake bread: fresh bread" in "".join(answer.content)
    (done,) = find_steps(prompt("plan_feedback"), "_plan_add_tasks_")
    assert isinstance(done, Content)
