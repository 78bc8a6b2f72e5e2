"""What is taken back: by a rollback it stays in the history and no model sees it; a reverted run is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace.errors import NotFound
from tests.support.orchestrator import Serve, Suite, as_json, assert_paired, read, types
from tests.support.orchestrator.events import read_until, run_of
from tests.support.orchestrator.steps import ANSWER, Step, answer, call_tool, content
from tests.support.waiting import wait_until

HANGING: list[Step] = [*content("Hel"), 3600.0]


def said(suite: Suite, number: int = -1) -> list[str]:
    """The texts of a request, without its system message."""
    messages = list(suite.llm.requests[number].messages)
    return ["".join(part.text for part in message.content) for message in messages]


@asynccontextmanager
async def hanging(suite: Suite, message: str, until: str = "content.delta") -> AsyncGenerator[list[dict[str, Any]]]:
    """A run of the suite's chat that has got so far; its events, all of them after the block."""
    async with suite.client.ask(message, agent_key="react", chat_id=suite.chat_id) as deltas:
        events = await read_until(deltas, until)
        yield events
        events += [as_json(delta) async for delta in deltas]


@pytest.mark.parametrize(("turn", "until"), [(HANGING, "content.delta"), (call_tool("slow"), "tool.output")])
async def test_the_running_run_is_taken_back(serve: Serve, turn: list[Step], until: str) -> None:
    async with serve(ANSWER, turn, ANSWER) as suite:
        await suite.ask("one")
        async with hanging(suite, "wrong", until) as cancelled:
            events = await suite.ask("right", when_busy="rollback")
        assert cancelled[-1]["type"] == "run.cancel"
        assert events[-1]["type"] == "run.complete"
        assert said(suite) == ["one", "All good.", "right"]
        await suite.ask("and now?")
        assert said(suite) == ["one", "All good.", "right", "All good.", "and now?"]
        assert_paired(suite.llm.requests[-1])
        shown = [as_json(event) for event in (await suite.client.chat(suite.chat_id)).events]
        asked = [event["message"] for event in shown if event["type"] == "request.query"]
        assert asked == ["one", "wrong", "right", "and now?"]
        assert "run.cancel" in types(shown)


async def test_those_that_wait_are_taken_back_too(serve: Serve) -> None:
    async with serve(ANSWER, HANGING, ANSWER) as suite:
        await suite.ask("one")
        async with hanging(suite, "wrong"):
            waiting = asyncio.create_task(suite.ask("wrong too"))
            await asyncio.sleep(0.1)
            events = await suite.ask("right", when_busy="rollback")
            assert (await waiting)[-1]["type"] == "run.cancel"
        assert events[-1]["type"] == "run.complete"
        assert said(suite) == ["one", "All good.", "right"]


async def test_one_rollback_after_another(serve: Serve) -> None:
    async with serve(ANSWER, HANGING, HANGING, ANSWER) as suite:
        await suite.ask("one")
        async with hanging(suite, "wrong"):
            second = asyncio.create_task(suite.ask("wrong again", when_busy="rollback"))
            await wait_until(lambda: len(suite.llm.requests) >= 3)
            await suite.ask("right", when_busy="rollback")
            assert (await second)[-1]["type"] == "run.cancel"
        assert said(suite) == ["one", "All good.", "right"]


async def test_rollbacks_that_follow_at_once(serve: Serve) -> None:
    async with serve(ANSWER, HANGING, ANSWER) as suite:
        await suite.ask("one")
        async with hanging(suite, "wrong"):
            asked = [asyncio.create_task(suite.ask(f"no {n}", when_busy="rollback")) for n in range(5)]
            await asyncio.sleep(0)
            await suite.ask("right", when_busy="rollback")
            await asyncio.wait(asked)
        assert said(suite)[:2] == ["one", "All good."]
        assert "wrong" not in said(suite)
        await suite.ask("and now?")
        assert "wrong" not in said(suite)
        assert_paired(suite.llm.requests[-1])


async def test_a_chat_that_is_not_busy_has_nothing_to_take_back(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        await suite.ask("one")
        await suite.ask("two", when_busy="rollback")
    assert said(suite) == ["one", "All good.", "two"]


async def test_an_interrupted_run_stays_in_the_view(serve: Serve) -> None:
    async with serve(ANSWER, HANGING, ANSWER) as suite:
        await suite.ask("one")
        async with hanging(suite, "two"):
            await suite.ask("three", when_busy="interrupt")
    assert said(suite) == ["one", "All good.", "two", "Hel", "three"]


async def test_a_reverted_run_is_not_found(serve: Serve) -> None:
    async with serve(answer("a")) as suite:
        run_id = run_of(await suite.ask(record=True))
        assert await suite.client.cassette(run_id)
        await suite.client.revert(suite.chat_id, 0)
        for refused in (
            read(suite.client, run_id),
            suite.client.steer(run_id, "go on"),
            suite.client.cancel(run_id),
            suite.client.cassette(run_id),
        ):
            with pytest.raises(NotFound, match="reverted"):
                await refused
