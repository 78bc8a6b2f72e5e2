"""The simulated planner and delegator: the calls it makes for a question, and the answers it writes from results."""

import json
from typing import Any

import pytest

from services.orchestrator.agents import prompts
from services.simulator.model.builtin import build_reply
from services.simulator.model.results import describe_results
from services.simulator.model_request import SaidText, ToolResult
from services.simulator.script import Content, Reasoning, ToolCall
from tests.support.model_requests import make_request

ID = "0a1b2c3d"


def find_steps(text: str, *tools: str, run_up: tuple[str, ...] = ()) -> list[Any]:
    """Return the steps of the answer to a question with these tools."""
    offered = {tool: frozenset[str]() for tool in tools}
    dialogue = (*(SaidText("user", text) for text in run_up), SaidText("user", text))
    return list(build_reply(make_request(text, offered, dialogue=dialogue)).steps)


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
def test_a_plan_tool_is_called_if_its_prompt_asks_for_it(text: str, tool: str, arguments: dict[str, Any]) -> None:
    (call,) = find_steps(text, tool)
    assert isinstance(call, ToolCall)
    assert (call.tool_call, json.loads("".join(call.arguments))) == (tool, arguments)


def test_a_task_is_worked_on_alone_and_the_summary_has_its_result() -> None:
    work = prompt("task_work", task_list="- 1 [init] what is the weather in Rome", task_description="say hello")
    assert not [step for step in find_steps(work, "weather", "_plan_get_tasks_") if isinstance(step, ToolCall)]
    report = prompt("task_report", status="completed", result="fresh bread")
    back = prompt("plan_restate", status="completed", result="more\n\nbread", remaining="none", parent="x", thought="")
    (answer,) = find_steps(prompt("summary"), "_plan_add_tasks_", run_up=(report, back))
    assert isinstance(answer, Content)
    assert "".join(answer.content).endswith("**bake bread**\n\nfresh bread\n\n**bake bread**\n\nmore\n\nbread")
    (feedback_answer,) = find_steps(prompt("plan_feedback"), "_plan_add_tasks_")
    assert isinstance(feedback_answer, Content)


PLANNER = {"_plan_add_tasks_": frozenset[str]()}
TRIP = ["See what the weather in Rome is", "Search for sights in Rome", "Say what to pack for Rome"]


def test_a_draft_is_reasoned_about_and_becomes_the_plan() -> None:
    question = "Plan a weekend in Rome"
    reasoning, draft = build_reply(make_request(question, PLANNER, may_call=False)).steps
    assert isinstance(reasoning, Reasoning)
    assert isinstance(draft, Content)
    text = "".join(draft.content)
    assert text.splitlines() == [f"{number}. {task}" for number, task in enumerate(TRIP, start=1)]
    wish = prompt("plan_generate")
    dialogue = (SaidText("user", question), SaidText("assistant", text), SaidText("user", wish))
    (call,) = build_reply(make_request(wish, PLANNER, dialogue=dialogue)).steps
    assert isinstance(call, ToolCall)
    assert [task["description"] for task in json.loads("".join(call.arguments))["tasks"]] == TRIP


def test_a_summary_contains_nothing_of_an_earlier_plan() -> None:
    dialogue = (
        SaidText("user", prompt("task_report", status="completed", result="old")),
        SaidText("assistant", "Here is what came of it: …"),
        SaidText("user", prompt("task_report", status="completed", result="new")),
        SaidText("user", prompt("summary")),
        SaidText("user", "Make it short."),
    )
    (answer,) = build_reply(make_request("Make it short.", PLANNER, dialogue=dialogue, may_call=False)).steps
    assert isinstance(answer, Content)
    assert "".join(answer.content) == "Here is what came of it:\n\n**bake bread**\n\nnew"


@pytest.mark.parametrize(
    ("weather", "packed"),
    [
        ("The weather in Rome on 2026-05-01: light rain, 8 °C, …", "warm layers, a rain jacket"),
        ("fine", "not known yet"),
    ],
)
def test_the_packing_list_depends_on_the_weather_in_a_tasks_report(weather: str, packed: str) -> None:
    dialogue = (SaidText("user", prompt("task_report", status="completed", result=weather)),)
    _, answer = build_reply(make_request(prompt("task_work", task_description=TRIP[2]), dialogue=dialogue)).steps
    assert isinstance(answer, Content)
    assert packed in "".join(answer.content)


TEAM = {"call_subagent": frozenset({"agentKey", "task", "maxLoops"})}
DESCRIPTION = "Give a task to a sub-agent.\n- agentKey scout: Looks around\n- agentKey clerk: Writes"


def list_calls(text: str, description: str = DESCRIPTION) -> list[dict[str, Any]]:
    steps = build_reply(make_request(text, TEAM, descriptions={"call_subagent": description})).steps
    return [json.loads("".join(step.arguments)) for step in steps if isinstance(step, ToolCall)]


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        ("Compare water mills and windmills.", ["water mills", "windmills"]),
        ("What is the difference between mills, tides, and wind?", ["mills", "tides", "wind"]),
        ("比较水车和风车", ["水车", "风车"]),
        ("Research sand", ["sand"]),
        ("Hello", []),
    ],
)
def test_each_part_of_a_question_becomes_a_call(question: str, parts: list[str]) -> None:
    assert list_calls(question) == [{"agentKey": "scout", "task": f"Read up on {part}"} for part in parts]


def test_an_agent_is_named_only_if_the_tool_names_one() -> None:
    assert list_calls("Research sand", "Give a task.") == [{"task": "Read up on sand"}]
    assert list_calls("Ask clerk to write: a; b")[1] == {"agentKey": "clerk", "task": "write b"}


def test_results_of_parts_are_compared_by_their_figures() -> None:
    texts = [
        f"There are {count} reports about {part}, the first of them from {year}. X." for part, count, year in PARTS
    ]
    results = [ToolResult("call_subagent", json.dumps({"ok": True, "result": text})) for text in texts]
    first, second, comparison = describe_results(results).split("\n\n")
    assert [first, second] == texts
    assert comparison.startswith("Compared: most reports are about wind (30), and the oldest about tides (1951).")


PARTS = (("tides", 20, 1951), ("wind", 30, 1960))


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("sea_weather", '{"waves_m": 0.5, "water_c": 17}', "sea_weather says: waves_m 0.5, water_c 17"),
        ("mock_city_weather", "no such city", "mock_city_weather says: no such city"),
        ("web_search", "nothing was found", "web_search says: nothing was found"),
        ("call_subagent", '{"ok":false,"error":"BUSY"}', "call_subagent says: ok False, error BUSY"),
        ("_bash_", "hello\n", "The command printed:\n\n```\nhello\n```"),
    ],
)
def test_a_result_of_an_unknown_form_is_repeated(name: str, content: str, expected: str) -> None:
    assert describe_results([ToolResult(name, content)]) == expected
