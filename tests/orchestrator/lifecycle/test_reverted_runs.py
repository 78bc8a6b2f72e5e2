"""A run that its chat's owner has reverted is there for nobody any more."""

from __future__ import annotations

import pytest

from headrace.errors import NotFound
from tests.support.orchestrator import Serve
from tests.support.orchestrator.steps import answer


async def test_a_reverted_run_is_not_found(serve: Serve) -> None:
    async with serve(answer("a")) as suite:
        events = await suite.ask("hello", agent="react")
        run_id = next(event["runId"] for event in events if event["type"] == "run.start")
        await suite.client.revert(suite.chat_id, 0)

        async def attach() -> None:
            async with suite.client.attach(run_id) as run:
                await anext(run)

        with pytest.raises(NotFound, match="reverted"):
            await attach()
        with pytest.raises(NotFound, match="reverted"):
            await suite.client.steer(run_id, "go on")
        with pytest.raises(NotFound, match="reverted"):
            await suite.client.cancel(run_id)
