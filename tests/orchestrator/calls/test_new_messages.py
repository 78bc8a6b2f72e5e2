"""What becomes of a run that waits for a person when its chat is asked something new."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.orchestrator.calls.test_answerers import ANSWER, LISTED, Asked, asking, offer
from tests.orchestrator.conftest import Open, content, finish

AGAIN = content("Some", "thing new.") + finish()


@pytest.mark.parametrize("kind", ["approval", "form"])
async def test_a_new_message_cancels_a_run_that_waits_where_the_agent_says_so(kind: str, house: Open) -> None:
    fields: dict[str, Any] = LISTED | {"onNewMessage": "cancel"}
    async with house(asking(kind), AGAIN, **fields) as it, asyncio.TaskGroup() as group:
        offer(it, {}, kind)
        asked = Asked()
        run = group.create_task(asked.follow(it.client))
        gate = await asked.gate
        chat_id = (await it.client.gate(*gate)).chat_id
        async with it.client.ask("and now?", agent_key="react", chat_id=chat_id) as deltas:
            second = [delta async for delta in deltas]
        assert (await run)[-1]["type"] == "run.cancel"
        assert (await it.client.gates()).gates == []
        assert (await it.client.gate(*gate)).state == "cancelled"
    assert second[-1].HasField("run_complete")


async def test_without_it_the_message_waits_for_the_run(house: Open) -> None:
    async with house(asking("form"), ANSWER, AGAIN, **LISTED) as it, asyncio.TaskGroup() as group:
        offer(it, {}, "form")
        asked = Asked()
        run = group.create_task(asked.follow(it.client))
        gate = await asked.gate
        chat_id = (await it.client.gate(*gate)).chat_id
        async with it.client.ask("and now?", agent_key="react", chat_id=chat_id) as deltas:
            await anext(deltas)  # it is stored, and waits
            assert (await it.client.gate(*gate)).state == "open"
            await it.client.answer_gate(*gate, "1")
            second = [delta async for delta in deltas]
        assert (await run)[-1]["type"] == "run.complete"
    assert second[-1].HasField("run_complete")
