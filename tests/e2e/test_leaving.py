"""Callers that cancel or leave, and providers that fail: the provider is freed, the chat goes on."""

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


async def provider_is_free(suite: Suite) -> None:
    """Return when no stream is open at the provider; it must be within 500 ms."""
    async with within(0.5):
        await suite.simulator.until_idle()


@pytest.mark.parametrize("until", STALLS)
async def test_a_cancel_frees_the_provider_and_the_chat_takes_a_message_right_after(suite: Suite, until: str) -> None:
    suite.play({"match": {"text": "^go$"}, "steps": STALLS[until]}, {"steps": [{"content": "fine"}]})
    seen: list[dict[str, Any]] = []
    async with asyncio.timeout(100), suite.query("go", "react") as events:
        async for event in events:
            seen.append(event)
            if event["type"] == until:
                status, _ = await suite.post("/api/cancel", {"runId": seen[2]["runId"]})
                assert status == 200
                await provider_is_free(suite)
    check_order(seen)
    assert seen[-1]["type"] == "run.cancel"
    again = await suite.ask("again", "react", chatId=seen[1]["chatId"])
    assert texts(again, "content") == ["fine"]
    for request in suite.requests():
        assert_paired(request["messages"])


@pytest.mark.parametrize("until", STALLS)
async def test_a_caller_that_leaves_with_cancel_frees_the_provider(suite: Suite, until: str) -> None:
    suite.play({"match": {"text": "^go$"}, "steps": STALLS[until]}, {"steps": [{"content": "fine"}]})
    seen: list[dict[str, Any]] = []
    async with asyncio.timeout(100):
        async with suite.query("go", "react", onDisconnect="cancel") as events:
            async for event in events:
                seen.append(event)
                if event["type"] == until:
                    break
        await provider_is_free(suite)
        ended = await suite.attach(seen[2]["runId"])
    assert ended[-1]["type"] == "run.cancel"
    again = await suite.ask("again", "react", chatId=seen[1]["chatId"])
    assert texts(again, "content") == ["fine"]


async def test_a_caller_that_leaves_without_a_word_leaves_the_run_going(suite: Suite) -> None:
    suite.play({"steps": [{"content": "Hel"}, {"waitMs": 300}, {"content": "lo"}]})
    async with asyncio.timeout(100):
        async with suite.query("go") as events:
            seen = [await anext(events) for _ in range(5)]
        rest = await suite.attach(seen[2]["runId"], seen[-1]["seq"])
    assert rest[-1]["type"] == "run.complete"


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
async def test_a_provider_that_fails_gives_one_honest_end(suite: Suite, number: int, steps: Any, code: str) -> None:
    agent = f"fail-{number}"
    suite.play({"match": {"text": "^go$"}, "steps": steps}, {"steps": [{"content": "fine"}]})
    events = await suite.ask("go", agent)
    assert events[-1]["type"] == "run.error"
    assert events[-1]["error"]["code"] == code
    again = await suite.ask("again", agent, chatId=events[1]["chatId"])
    assert texts(again, "content") == ["fine"]
    status, answer = await suite.post("/api/query", {"message": "go", "agentKey": agent, "stream": False})
    assert status == answer["code"] >= 400
    assert answer["error"]["code"] == code


async def test_a_run_out_of_time_says_so(suite: Suite) -> None:
    suite.play({"steps": [{"content": "Hel"}, {"stall": True}]})
    events = await suite.ask("go", "hurried")
    assert events[-1]["error"]["code"] == "BUDGET_EXCEEDED"
    await provider_is_free(suite)
