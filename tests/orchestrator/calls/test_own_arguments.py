"""Arguments of the orchestrator's own tools that JSON Schema takes, or that are no text: no run fails by them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.orchestrator import Serve, Suite
from tests.support.orchestrator.compaction import call_once, compact_chat
from tests.support.orchestrator.steps import ANSWER, call_tool

OWN = {"toolConfig": {"backends": ["todo_write", "call_subagent"]}}
HALF = '"\\ud83d"'
"""Half of a surrogate pair, as a model that was cut in an emoji writes it."""


async def tell_result(suite: Suite) -> str:
    """The result of the run's one call, after a run that has its answer."""
    events = await suite.ask()
    assert events[-1]["type"] == "run.complete", events[-1]
    [result] = [event["result"] for event in events if event["type"] == "tool.result"]
    return result


async def test_a_whole_number_may_be_written_with_a_fraction_of_zero(serve: Serve) -> None:
    calling = call_tool("call_subagent", '{"task":"x","maxLoops":10.0}')
    async with serve(calling, ANSWER, **OWN) as suite:
        assert json.loads(await tell_result(suite))["result"] == "All good."


@pytest.mark.parametrize("arguments", [f'{{"todos":[{{"content":{HALF},"status":"pending"}}]}}', f"{{{HALF}:1}}"])
async def test_half_a_character_is_told_to_the_model(serve: Serve, arguments: str) -> None:
    async with serve(call_tool("todo_write", arguments), ANSWER, **OWN) as suite:
        assert "not valid JSON" in await tell_result(suite)


async def test_rules_are_held_against_what_has_half_a_character(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "approvals.yaml").write_text("tools: {look: [{pattern: secret, then: deny, argument: q}]}")
    turns = [call_tool("look", f'{{"q":["{text}",{HALF}]}}') for text in ("secret", "other")]
    async with serve(*turns, ANSWER) as suite:
        events = await suite.ask()
        assert len(suite.tools.requests) == 1, "what is to be done about the other is for the tools service to say"
    results = [event["result"] for event in events if event["type"] == "tool.result"]
    assert ["denied" in result for result in results] == [True, False]
    assert events[-1]["type"] == "run.complete"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_history", '{"first":1.0,"last":2.0}'),
        ("read_history", '{"first":100000000000000000000}'),
        ("read_history", '{"first":1e30}'),
        ("read_result", '{"id":"x","offset":100000000000000000000}'),
    ],
)
async def test_numbers_of_lines_may_be_anything(serve: Serve, tool: str, arguments: str) -> None:
    async with serve(ANSWER) as suite:
        await compact_chat(suite, "react")
        call_once(suite, tool, arguments)
        events = await suite.ask("again")
    assert events[-1]["type"] == "run.complete", events[-1]
    [result] = [event["result"] for event in events if event["type"] == "tool.result"]
    assert ("INVALID_ARGUMENTS" in result) == ("0000" in arguments or "1e" in arguments)
