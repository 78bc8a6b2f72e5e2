"""kill -9 in the middle, and start again: nothing acknowledged is lost, the run goes on to its one end, so does the
chat."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from services.simulator.script import parse_script
from services.simulator.server import simulator
from tests.support.order import TERMINAL, fold, texts
from tests.support.pairing import assert_paired
from tests.support.suite import FORM, Suite, fresh_suite, gone, running, until_replaced
from tests.support.tiers import check_first

MOMENTS: dict[str, list[dict[str, Any]]] = {
    "content.delta": [{"content": "Hel"}, {"stall": True}],
    "tool.args": [{"toolCall": "mock_city_weather", "id": "call_1", "arguments": ['{"city":']}, {"stall": True}],
    "tool.output": [{"toolCall": "_bash_", "id": "call_1", "arguments": ['{"command":"echo on; sleep 3600"}']}],
    "run.start": [{"stall": True}],
}


VICTIMS = ["memory", "llm_gateway", "tools", "orchestrator", "facade"] if FORM == "--split" else ["suite", "tools"]


@pytest.mark.parametrize("until", check_first(MOMENTS))
async def test_killed_in_mid_run_and_started_again(tmp_path: Path, until: str) -> None:
    rules = [{"match": {"text": "^go$"}, "steps": MOMENTS[until]}, {"steps": [{"content": "fine"}]}]
    async with asyncio.timeout(600), simulator(rules) as sim:
        seen: list[dict[str, Any]] = []
        async with running(tmp_path / "config", tmp_path / "data", sim) as suite:
            before = await suite.ask("remember this", "react")
            chat_id = before[1]["chatId"]
            async with suite.query("go", "react", chatId=chat_id) as events:
                async for event in events:
                    seen.append(event)
                    if event["type"] == until:
                        break
            services = suite.services()
            assert await suite.stop(signal.SIGKILL) == -signal.SIGKILL
            await gone(services)
        sim.rules = parse_script([{"steps": [{"content": "fine"}]}])
        async with running(tmp_path / "config", tmp_path / "data", sim) as suite:
            run_id = seen[1]["runId"]
            rest = await rejecting(suite, run_id, seen[-1]["seq"])
            assert rest[0] | {"timestamp": 0} == {
                "type": "attempt.reset",
                "seq": 1_000_001,
                "timestamp": 0,
                "runId": run_id,
                "fromSeq": rest[0]["fromSeq"],
                "reason": "INTERRUPTED",
            }
            assert [event["type"] for event in rest if event["type"] in TERMINAL] == ["run.complete"]
            whole = fold([*seen, *rest])
            assert [block["text"] for block in whole["blocks"].values() if block["kind"] == "content"] == ["fine"]
            assert fold(await suite.attach(run_id)) == whole
            again = await suite.ask("again", "react", chatId=chat_id)
            assert texts(again, "content") == ["fine"]
            assert_paired(suite.requests()[-1]["messages"])
            _, answer = await suite.get("/api/chat", chatId=chat_id)
            history = fold(answer["data"]["events"])["blocks"]
            assert history | fold(before)["blocks"] == history
            _, run = await suite.get("/api/run", runId=run_id)
            assert run["data"]["state"] == "completed"
            _, spent = await suite.get("/api/usage")
            ends = [next(event for event in seen if event["type"] == "run.complete") for seen in (before, rest, again)]
            assert_spent(spent["data"]["total"], [end["usage"] for end in ends])
        assert_numbered(tmp_path / "data" / "chats" / f"{chat_id}.json")


@pytest.mark.parametrize("victim", check_first(VICTIMS))
async def test_a_service_that_is_killed_comes_back_and_the_chat_goes_on(tmp_path: Path, victim: str) -> None:
    async with asyncio.timeout(600), fresh_suite(tmp_path) as suite:
        first = await suite.ask("What is the weather in Rome?", "react")
        chat_id = first[1]["chatId"]
        killed = suite.services()[victim]
        suite.simulator.rules = parse_script(
            [{"match": {"text": "^go$"}, "steps": [{"content": "Hel"}, {"waitMs": 1500}, {"content": "lo"}]}]
        )
        async with suite.http.post(
            f"{suite.url}/api/query", json={"message": "go", "agentKey": "react", "chatId": chat_id}
        ) as response:
            head = b""
            while b"content.delta" not in head:
                head += await response.content.readany()
            os.kill(killed, signal.SIGKILL)
        run_id = json.loads(head.split(b"data: ")[2].split(b"\n")[0])["runId"]
        await until_replaced(suite, victim, killed)
        # Where the run's lease went with memory, its reader is cut off, and the next owner goes on.
        ended = await suite.follow(run_id)
        assert [event["type"] for event in ended if event["type"] in TERMINAL] == [ended[-1]["type"]]
        assert ended[-1]["type"] == "run.complete"
        texts = [block["text"] for block in fold(ended)["blocks"].values() if block["kind"] == "content"]
        assert texts == ["Hello"]
        again = await suite.ask("What is the weather in Oslo?", "react", chatId=chat_id)
        assert again[-1]["type"] == "run.complete"
        assert_paired(suite.requests()[-1]["messages"])
    assert_numbered(tmp_path / "data" / "chats" / f"{chat_id}.json")


def assert_spent(total: dict[str, Any], usages: list[dict[str, Any]]) -> None:
    """The day's sum is that of the runs, to the billionth of a dollar."""
    assert total["inputTokens"] == sum(usage["inputTokens"] for usage in usages) > 0
    assert total["outputTokens"] == sum(usage["outputTokens"] for usage in usages)
    assert total.get("costNanoUsd", 0) == sum(round(usage.get("costUsd", 0) * 1e9) for usage in usages)


async def rejecting(suite: Suite, run_id: str, last_seq: int) -> list[dict[str, Any]]:
    """The rest of a run, whose reader has nothing run again of which nobody knows whether it was done."""
    seen: list[dict[str, Any]] = []
    async with suite.attached(run_id, last_seq) as events:
        async for event in events:
            seen.append(event)
            if event["type"] == "approval.ask":
                body = {"runId": run_id, "approvalId": event["approvalId"], "params": {"decision": "reject"}}
                assert (await suite.post("/api/submit", body))[0] == 200
    return seen


def assert_numbered(log: Path) -> None:
    """Every line is JSON, `_n` counts from 1 without gaps, and each run has one run line at most."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["_n"] for line in lines] == list(range(1, len(lines) + 1))
    ends = [line["runId"] for line in lines if line["_type"] == "run"]
    assert len(ends) == len(set(ends))
