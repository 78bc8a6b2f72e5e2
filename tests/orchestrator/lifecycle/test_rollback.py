"""whenBusy rollback: what was cancelled stays in the history, and no model sees it again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.orchestrator.conftest import House, Open, Step, as_json, call, content, finish
from tests.orchestrator.lifecycle.test_runs import assert_paired, types

ANSWER = content("All ", "good.") + finish()
HANGING: list[Step] = [*content("Hel"), 3600.0]


def said(it: House, number: int = -1) -> list[str]:
    """The texts of a request, without its system message."""
    messages = list(it.llm.requests[number].messages)
    return ["".join(part.text for part in message.content) for message in messages]


@asynccontextmanager
async def hanging(it: House, message: str, until: str = "content.delta") -> AsyncGenerator[list[dict[str, Any]]]:
    """A run of the house's chat that has got so far; its events, all of them after the block."""
    events: list[dict[str, Any]] = []
    async with it.client.ask(message, agent_key="react", chat_id=it.chat_id) as deltas:
        async for delta in deltas:
            events.append(as_json(delta))
            if events[-1]["type"] == until:
                break
        yield events
        async for delta in deltas:
            events.append(as_json(delta))


@pytest.mark.parametrize(
    ("turn", "until"), [(HANGING, "content.delta"), (call("slow") + finish("tool_calls"), "tool.output")]
)
async def test_the_running_run_is_taken_back(house: Open, turn: list[Step], until: str) -> None:
    async with house(ANSWER, turn, ANSWER) as it:
        await it.ask("one")
        async with hanging(it, "wrong", until) as cancelled:
            events = await it.ask("right", when_busy="rollback")
        assert cancelled[-1]["type"] == "run.cancel"
        assert events[-1]["type"] == "run.complete"
        assert said(it) == ["one", "All good.", "right"]
        await it.ask("and now?")
        assert said(it) == ["one", "All good.", "right", "All good.", "and now?"]
        assert_paired(it.llm.requests[-1])
        shown = [as_json(event) for event in (await it.client.chat(it.chat_id)).events]
        asked = [event["message"] for event in shown if event["type"] == "request.query"]
        assert asked == ["one", "wrong", "right", "and now?"]
        assert "run.cancel" in types(shown)


async def test_those_that_wait_are_taken_back_too(house: Open) -> None:
    async with house(ANSWER, HANGING, ANSWER) as it:
        await it.ask("one")
        async with hanging(it, "wrong"):
            waiting = asyncio.create_task(it.ask("wrong too"))
            await asyncio.sleep(0.1)
            events = await it.ask("right", when_busy="rollback")
            assert (await waiting)[-1]["type"] == "run.cancel"
        assert events[-1]["type"] == "run.complete"
        assert said(it) == ["one", "All good.", "right"]


async def test_one_rollback_after_another(house: Open) -> None:
    async with house(ANSWER, HANGING, HANGING, ANSWER) as it:
        await it.ask("one")
        async with hanging(it, "wrong"):
            second = asyncio.create_task(it.ask("wrong again", when_busy="rollback"))
            async with asyncio.timeout(50):
                while len(it.llm.requests) < 3:
                    await asyncio.sleep(0.01)
            await it.ask("right", when_busy="rollback")
            assert (await second)[-1]["type"] == "run.cancel"
        assert said(it) == ["one", "All good.", "right"]


async def test_rollbacks_that_follow_at_once(house: Open) -> None:
    async with house(ANSWER, HANGING, ANSWER) as it:
        await it.ask("one")
        async with hanging(it, "wrong"):
            asked = [asyncio.create_task(it.ask(f"no {n}", when_busy="rollback")) for n in range(5)]
            await asyncio.sleep(0)
            await it.ask("right", when_busy="rollback")
            await asyncio.wait(asked)
        assert said(it)[:2] == ["one", "All good."]
        assert "wrong" not in said(it)
        await it.ask("and now?")
        assert "wrong" not in said(it)
        assert_paired(it.llm.requests[-1])


async def test_a_chat_that_is_not_busy_has_nothing_to_take_back(house: Open) -> None:
    async with house(ANSWER) as it:
        await it.ask("one")
        await it.ask("two", when_busy="rollback")
    assert said(it) == ["one", "All good.", "two"]


async def test_an_interrupted_run_stays_in_the_view(house: Open) -> None:
    async with house(ANSWER, HANGING, ANSWER) as it:
        await it.ask("one")
        async with hanging(it, "two"):
            await it.ask("three", when_busy="interrupt")
    assert said(it) == ["one", "All good.", "two", "Hel", "three"]
