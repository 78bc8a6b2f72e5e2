"""A run's last answer is stored together with its end."""

from __future__ import annotations

from headrace.v1 import memory_pb2
from tests.support.orchestrator import Serve
from tests.support.orchestrator.steps import answer, call_tool


async def test_the_last_answer_and_the_runs_end_are_one_append(serve: Serve) -> None:
    appended: list[list[str | None]] = []

    async def note(request: memory_pb2.AppendRequest) -> None:
        appended.append([line.WhichOneof("line") for line in request.lines])

    turns = [call_tool("look"), answer("done")]
    async with serve(*turns, before_append=note) as suite:
        assert (await suite.ask("go"))[-1]["type"] == "run.complete"
    assert (appended[0], appended[-1]) == (["query"], ["step", "run"])
    assert ["step"] in appended[1:-1], "an answer with calls is stored before they run"
