"""A run begins with one call of memory and ends with one."""

from __future__ import annotations

import pytest
import structlog
from structlog.testing import capture_logs

from headrace.v1 import memory_pb2
from tests.support.orchestrator import Serve, Suite, answer, call_tool

TRIES = 20
"""What there is of tools and models is relied on for two seconds, which a slow machine may take for a run."""


def list_memory_calls(lines: list[structlog.typing.EventDict]) -> list[str]:
    methods = [line["method"] for line in lines if line["event"] == "rpc done"]
    return [method.rpartition("/")[2] for method in methods if method.startswith("/headrace.v1.MemoryService/")]


async def ask_until(suite: Suite, agent: str, expected: list[str]) -> None:
    """Ask until a query took these calls of memory."""
    calls: list[str] = []
    for _ in range(TRIES):
        with capture_logs() as lines:
            events = await suite.ask("two", agent)
        assert events[-1]["type"] == "run.complete"
        if sorted(calls := list_memory_calls(lines)) == sorted(expected):
            return
    raise AssertionError(calls)


@pytest.mark.parametrize("agent", ["oneshot", "react"])
async def test_a_plain_run_makes_two_calls_of_memory(serve: Serve, agent: str) -> None:
    async with serve(answer("Hel", "lo")) as suite:
        await suite.ask("one", agent)
        await ask_until(suite, agent, ["BeginRun", "Append"])
        told = [message for message in suite.llm.requests[-1].messages if message.role != "system"]
        texts = ["".join(part.text for part in message.content).split("\n")[0] for message in told]
        assert texts[:3] == ["one", "Hello", "two"]
        assert texts[-1] == "two"


async def test_a_chats_state_is_seen_though_the_work_began_without_it(serve: Serve) -> None:
    todos = '{"todos":[{"id":"1","content":"write the paper","status":"pending"}]}'
    async with serve(answer("ok")) as suite:
        await suite.ask("one")
        await suite.memory.UpdateState(memory_pb2.UpdateStateRequest(chat_id=suite.chat_id, state=todos), None)
        with capture_logs() as lines:
            await suite.ask("two")
        assert {*list_memory_calls(lines)} == {"Append", "BeginRun", "LoadContext"}
        assert "write the paper" in str(suite.llm.requests[-1])
        await ask_until(suite, "react", ["Append", "GetState", "LoadContext", "Append"])
        assert "write the paper" in str(suite.llm.requests[-1])


async def test_the_last_answer_and_the_runs_end_are_one_append(serve: Serve) -> None:
    appended: list[list[str | None]] = []

    async def note(request: memory_pb2.AppendRequest) -> None:
        appended.append([line.WhichOneof("line") for line in request.lines])

    turns = [call_tool("look"), answer("done")]
    async with serve(*turns, before_append=note) as suite:
        assert (await suite.ask("go"))[-1]["type"] == "run.complete"
    assert (appended[0], appended[-1]) == (["query"], ["step", "run"])
    assert ["step"] in appended[1:-1], "an answer with calls is stored before they run"
