"""Callers that cancel or leave, and providers that fail: the provider's stream closes, and the chat stays usable."""

import asyncio
from typing import Any

import pytest

from tests.support.order import check_order, texts
from tests.support.pairing import assert_paired
from tests.support.suite import Suite
from tests.support.timing import within

pytestmark = pytest.mark.asyncio(loop_scope="session")

STALLS: dict[str, list[dict[str, Any]]] = {
    "content.delta": [{"content": "Hel"}, {"stall": True}],
    "reasoning.delta": [{"reasoning": "hm"}, {"stall": True}],
    "tool.args": [{"toolCall": "mock_city_weather", "id": "call_1", "arguments": ['{"city":']}, {"stall": True}],
    "tool.output": [
        {"toolCall": "_bash_", "id": "call_1", "arguments": ['{"command":"echo on; sleep 3600"}']},
        {"finish": "tool_calls"},
    ],
    "run.start": [{"stall": True}],
}


async def assert_provider_idle(suite: Suite) -> None:
    """Assert that within 500 ms no stream is open at the provider."""
    async with within(0.5):
        await suite.simulator.until_idle()


@pytest.mark.parametrize("until", STALLS)
async def test_a_cancel_closes_the_providers_stream_and_the_next_query_succeeds(suite: Suite, until: str) -> None:
    suite.play({"match": {"text": "^go$"}, "steps": STALLS[until]}, {"steps": [{"content": "fine"}]})
    cancelled_run: list[dict[str, Any]] = []
    async with asyncio.timeout(100), suite.query("go", "react") as events:
        async for event in events:
            cancelled_run.append(event)
            if event["type"] == until:
                status, _ = await suite.post("/api/cancel", {"runId": cancelled_run[2]["runId"]})
                assert status == 200
                await assert_provider_idle(suite)
    check_order(cancelled_run)
    assert cancelled_run[-1]["type"] == "run.cancel"
    next_run = await suite.ask("again", "react", chatId=cancelled_run[1]["chatId"])
    assert texts(next_run, "content") == ["fine"]
    for request in suite.requests():
        assert_paired(request["messages"])


@pytest.mark.parametrize("until", STALLS)
async def test_a_caller_leaving_with_on_disconnect_cancel_closes_the_providers_stream(suite: Suite, until: str) -> None:
    suite.play({"match": {"text": "^go$"}, "steps": STALLS[until]}, {"steps": [{"content": "fine"}]})
    events_before: list[dict[str, Any]] = []
    async with asyncio.timeout(100):
        async with suite.query("go", "react", onDisconnect="cancel") as events:
            async for event in events:
                events_before.append(event)
                if event["type"] == until:
                    break
        await assert_provider_idle(suite)
        whole_run = await suite.attach(events_before[2]["runId"])
    assert whole_run[-1]["type"] == "run.cancel"
    next_run = await suite.ask("again", "react", chatId=events_before[1]["chatId"])
    assert texts(next_run, "content") == ["fine"]


async def test_a_run_continues_when_its_caller_leaves(suite: Suite) -> None:
    suite.play({"steps": [{"content": "Hel"}, {"waitMs": 300}, {"content": "lo"}]})
    async with asyncio.timeout(100):
        async with suite.query("go") as events:
            events_before = [await anext(events) for _ in range(5)]
        events_after = await suite.attach(events_before[2]["runId"], events_before[-1]["seq"])
    assert events_after[-1]["type"] == "run.complete"


@pytest.mark.parametrize(
    ("number", "steps", "code"),
    [
        (0, [{"status": 401, "body": {"error": {"message": "bad key"}}}], "PROVIDER_AUTHENTICATION"),
        (1, [{"status": 429}], "RATE_LIMITED"),
        (2, [{"status": 500}], "PROVIDER_UNAVAILABLE"),
        (3, [{"content": "Hel"}, {"cut": True}], "PROVIDER_UNAVAILABLE"),
        (4, [{"content": "Hel"}, {"raw": ["data: {nonsense\n\n"]}], "BAD_FRAME"),
        (5, [{"content": "Hel"}, {"raw": ["data: {" + "x" * (1 << 20) + "\n\n"]}], "BAD_FRAME"),
    ],
)
async def test_a_provider_failure_ends_the_run_once_with_its_code(
    suite: Suite, number: int, steps: Any, code: str
) -> None:
    agent = f"fail-{number}"
    suite.play({"match": {"text": "^go$"}, "steps": steps}, {"steps": [{"content": "fine"}]})
    events = await suite.ask("go", agent)
    assert events[-1]["type"] == "run.error"
    assert events[-1]["error"]["code"] == code
    next_run = await suite.ask("again", agent, chatId=events[1]["chatId"])
    assert texts(next_run, "content") == ["fine"]
    status, answer = await suite.post("/api/query", {"message": "go", "agentKey": agent, "stream": False})
    assert status == answer["code"] >= 400
    assert answer["error"]["code"] == code


async def test_a_run_out_of_time_ends_with_budget_exceeded(suite: Suite) -> None:
    suite.play({"steps": [{"content": "Hel"}, {"stall": True}]})
    events = await suite.ask("go", "hurried")
    assert events[-1]["error"]["code"] == "BUDGET_EXCEEDED"
    await assert_provider_idle(suite)
