"""kill -9 during a run, and a restart: nothing acknowledged is lost, the run continues to its one end, and the chat
stays usable."""

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
from tests.support.suite import FORM, Suite, fresh_suite, running, until_replaced, wait_for_exit
from tests.support.tiers import check_first

MOMENTS: dict[str, list[dict[str, Any]]] = {
    "content.delta": [{"content": "Hel"}, {"stall": True}],
    "tool.args": [{"toolCall": "mock_city_weather", "id": "call_1", "arguments": ['{"city":']}, {"stall": True}],
    "tool.output": [{"toolCall": "_bash_", "id": "call_1", "arguments": ['{"command":"echo on; sleep 3600"}']}],
    "run.start": [{"stall": True}],
}


VICTIMS = ["memory", "llm_gateway", "tools", "orchestrator", "facade"] if FORM == "--split" else ["suite", "tools"]


@pytest.mark.parametrize("until", check_first(MOMENTS))
async def test_a_suite_killed_during_a_run_continues_it_after_a_restart(tmp_path: Path, until: str) -> None:
    rules = [{"match": {"text": "^go$"}, "steps": MOMENTS[until]}, {"steps": [{"content": "fine"}]}]
    async with asyncio.timeout(600), simulator(rules) as sim:
        events_before: list[dict[str, Any]] = []
        async with running(tmp_path / "config", tmp_path / "data", sim) as suite:
            first_run = await suite.ask("remember this", "react")
            chat_id = first_run[1]["chatId"]
            async with suite.query("go", "react", chatId=chat_id) as events:
                async for event in events:
                    events_before.append(event)
                    if event["type"] == until:
                        break
            services = suite.services()
            assert await suite.stop(signal.SIGKILL) == -signal.SIGKILL
            await wait_for_exit(services)
        sim.rules = parse_script([{"steps": [{"content": "fine"}]}])
        async with running(tmp_path / "config", tmp_path / "data", sim) as suite:
            run_id = events_before[1]["runId"]
            events_after = await read_rejecting(suite, run_id, events_before[-1]["seq"])
            assert events_after[0] | {"timestamp": 0} == {
                "type": "attempt.reset",
                "seq": 1_000_001,
                "timestamp": 0,
                "runId": run_id,
                "fromSeq": events_after[0]["fromSeq"],
                "reason": "INTERRUPTED",
            }
            assert [event["type"] for event in events_after if event["type"] in TERMINAL] == ["run.complete"]
            whole = fold([*events_before, *events_after])
            assert [block["text"] for block in whole["blocks"].values() if block["kind"] == "content"] == ["fine"]
            assert fold(await suite.attach(run_id)) == whole
            third_run = await suite.ask("again", "react", chatId=chat_id)
            assert texts(third_run, "content") == ["fine"]
            assert_paired(suite.requests()[-1]["messages"])
            _, answer = await suite.get("/api/chat", chatId=chat_id)
            history = fold(answer["data"]["events"])["blocks"]
            assert history | fold(first_run)["blocks"] == history
            _, run = await suite.get("/api/run", runId=run_id)
            assert run["data"]["state"] == "completed"
            _, usage = await suite.get("/api/usage")
            ends = [
                next(event for event in events_before if event["type"] == "run.complete")
                for events_before in (first_run, events_after, third_run)
            ]
            assert_spent(usage["data"]["total"], [end["usage"] for end in ends])
        assert_numbered(tmp_path / "data" / "chats" / f"{chat_id}.json")


@pytest.mark.parametrize("victim", check_first(VICTIMS))
async def test_a_killed_service_is_restarted_and_the_run_completes(tmp_path: Path, victim: str) -> None:
    async with asyncio.timeout(600), fresh_suite(tmp_path) as suite:
        first = await suite.ask("What is the weather in Rome?", "react")
        chat_id = first[1]["chatId"]
        killed_pid = suite.services()[victim]
        suite.simulator.rules = parse_script(
            [{"match": {"text": "^go$"}, "steps": [{"content": "Hel"}, {"waitMs": 1500}, {"content": "lo"}]}]
        )
        async with suite.http.post(
            f"{suite.url}/api/query", json={"message": "go", "agentKey": "react", "chatId": chat_id}
        ) as response:
            head = b""
            while b"content.delta" not in head:
                head += await response.content.readany()
            os.kill(killed_pid, signal.SIGKILL)
        run_id = json.loads(head.split(b"data: ")[2].split(b"\n")[0])["runId"]
        await until_replaced(suite, victim, killed_pid)
        # If the run's lease was lost with memory, its reader is disconnected, and the next owner continues.
        run_events = await suite.follow(run_id)
        assert [event["type"] for event in run_events if event["type"] in TERMINAL] == [run_events[-1]["type"]]
        assert run_events[-1]["type"] == "run.complete"
        texts = [block["text"] for block in fold(run_events)["blocks"].values() if block["kind"] == "content"]
        assert texts == ["Hello"]
        second_run = await suite.ask("What is the weather in Oslo?", "react", chatId=chat_id)
        assert second_run[-1]["type"] == "run.complete"
        assert_paired(suite.requests()[-1]["messages"])
    assert_numbered(tmp_path / "data" / "chats" / f"{chat_id}.json")


def assert_spent(total: dict[str, Any], usages: list[dict[str, Any]]) -> None:
    """Assert that the day's usage is the sum of the runs', to the billionth of a dollar."""
    assert total["inputTokens"] == sum(usage["inputTokens"] for usage in usages) > 0
    assert total["outputTokens"] == sum(usage["outputTokens"] for usage in usages)
    assert total.get("costNanoUsd", 0) == sum(round(usage.get("costUsd", 0) * 1e9) for usage in usages)


async def read_rejecting(suite: Suite, run_id: str, last_seq: int) -> list[dict[str, Any]]:
    """Read the rest of a run, and reject every approval to repeat a call of unknown outcome."""
    rest: list[dict[str, Any]] = []
    async with suite.attached(run_id, last_seq) as events:
        async for event in events:
            rest.append(event)
            if event["type"] == "approval.ask":
                body = {"runId": run_id, "approvalId": event["approvalId"], "params": {"decision": "reject"}}
                assert (await suite.post("/api/submit", body))[0] == 200
    return rest


def assert_numbered(log: Path) -> None:
    """Assert that every line is JSON, `_n` counts from 1 without gaps, and each run has at most one run line."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["_n"] for line in lines] == list(range(1, len(lines) + 1))
    ends = [line["runId"] for line in lines if line["_type"] == "run"]
    assert len(ends) == len(set(ends))
