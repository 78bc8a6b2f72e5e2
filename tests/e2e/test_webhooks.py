"""A run of the whole suite is told to a receiver, signed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import standardwebhooks

from services.simulator.server import simulator
from tests.support.suite import running
from tests.support.webhook_receiver import receiving


async def test_a_run_is_told_when_it_has_ended(tmp_path: Path) -> None:
    async with asyncio.timeout(900), receiving() as receiver, simulator() as sim:
        allow = {"HEADRACE_MEMORY_WEBHOOK_ALLOW": f"127.0.0.1:{receiver.port}"}
        async with running(tmp_path / "config", tmp_path / "data", sim, **allow) as suite:
            url = f"http://127.0.0.1:{receiver.port}/in"
            status, made = await suite.post("/api/webhooks", {"url": url, "agentKeys": ["plain"]})
            assert status == 200
            events = await suite.ask("hello")
            [post] = await receiver.wait_for(1)
    event = standardwebhooks.Webhook(made["data"]["secret"]).verify(post.body, post.headers)
    assert (event["type"], event["data"]["runId"]) == ("headrace.run.ended", events[-1]["runId"])
    assert event["data"]["usage"]["outputTokens"] > 0
