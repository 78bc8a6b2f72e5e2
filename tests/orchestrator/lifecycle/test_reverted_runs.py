"""A run that its chat's owner has reverted is there for nobody any more."""

from __future__ import annotations

import pytest

from headrace.errors import NotFound
from tests.orchestrator.conftest import Open, content, finish


async def test_a_reverted_run_is_not_found(house: Open) -> None:
    async with house([*content("a"), *finish()]) as it:
        events = await it.ask("hello", agent="react")
        run_id = next(event["runId"] for event in events if event["type"] == "run.start")
        await it.client.revert(it.chat_id, 0)

        async def attach() -> None:
            async with it.client.attach(run_id) as run:
                await anext(run)

        with pytest.raises(NotFound, match="reverted"):
            await attach()
        with pytest.raises(NotFound, match="reverted"):
            await it.client.steer(run_id, "go on")
        with pytest.raises(NotFound, match="reverted"):
            await it.client.cancel(run_id)
