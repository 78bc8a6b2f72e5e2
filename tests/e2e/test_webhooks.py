"""A run of the whole suite is told to a receiver, signed."""

import asyncio
from pathlib import Path

import standardwebhooks

from tests.support.suite import fresh_suite
from tests.support.webhook_receiver import receiving


async def test_a_run_is_told_when_it_has_ended(tmp_path: Path) -> None:
    async with asyncio.timeout(900), receiving() as receiver:
        allow = {"HEADRACE_MEMORY_WEBHOOK_ALLOW": f"127.0.0.1:{receiver.port}"}
        async with fresh_suite(tmp_path, **allow) as suite:
            url = f"http://127.0.0.1:{receiver.port}/in"
            status, made = await suite.post("/api/webhooks", {"url": url, "agentKeys": ["plain"]})
            assert status == 200
            events = await suite.ask("hello")
            [post] = await receiver.wait_for(1)
    event = standardwebhooks.Webhook(made["data"]["secret"]).verify(post.body, post.headers)
    assert (event["type"], event["data"]["runId"]) == ("headrace.run.ended", events[-1]["runId"])
    assert event["data"]["usage"]["outputTokens"] > 0
