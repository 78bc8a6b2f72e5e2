"""Delegation and what is made of results, as the protocols give them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.simulator.model.builtin import build_reply
from services.simulator.model.results import describe_results
from services.simulator.requests.model_request import ToolResult
from services.simulator.scripts.steps import ToolCall
from tests.support.model_requests import make_request

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
def test_each_part_of_a_question_has_a_call_of_its_own(question: str, parts: list[str]) -> None:
    assert list_calls(question) == [{"agentKey": "scout", "task": f"Read up on {part}"} for part in parts]


def test_an_agent_is_named_only_when_the_tool_names_one() -> None:
    assert list_calls("Research sand", "Give a task.") == [{"task": "Read up on sand"}]
    assert list_calls("Ask clerk to write: a; b")[1] == {"agentKey": "clerk", "task": "write b"}


def test_results_of_parts_are_compared_by_their_figures() -> None:
    said = [f"There are {count} reports about {part}, the first of them from {year}. X." for part, count, year in PARTS]
    results = [ToolResult("call_subagent", json.dumps({"ok": True, "result": text})) for text in said]
    first, second, comparison = describe_results(results).split("\n\n")
    assert [first, second] == said
    assert comparison.startswith("Compared: most reports are about wind (30), and the oldest about tides (1951).")


PARTS = (("tides", 20, 1951), ("wind", 30, 1960))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("sea_weather", '{"waves_m": 0.5, "water_c": 17}', "sea_weather says: waves_m 0.5, water_c 17"),
        ("mock_city_weather", "no such city", "mock_city_weather says: no such city"),
        ("web_search", "nothing was found", "web_search says: nothing was found"),
        ("call_subagent", '{"ok":false,"error":"BUSY"}', "call_subagent says: ok False, error BUSY"),
        ("_bash_", "hello\n", "The command printed:\n\n```\nhello\n```"),
    ],
)
def test_a_result_of_another_form_is_repeated(name: str, content: str, said: str) -> None:
    assert describe_results([ToolResult(name, content)]) == said
