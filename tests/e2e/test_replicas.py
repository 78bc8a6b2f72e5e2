"""`headrace up --replicas 2`: connections are spread over replicas, any replica answers for all runs, and a killed one
loses none of them."""

import asyncio
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from services.simulator.script import parse_script
from tests.support.command_line import run
from tests.support.order import TERMINAL, fold
from tests.support.suite import TEST_TIMEOUT_S, Suite, fresh_suite

FORM = "--replicas=2"
CONNECTIONS = 24
"""The chance that the kernel gives all of them to one replica is one in eight million."""

RUN_ID = re.compile('"runId":"([^"]+)"')

SLOW = [{"match": {"text": "^go$"}, "steps": [{"content": "Hel"}, {"waitMs": 1500}, {"content": "lo"}]}]


def find_replicas(suite: Suite) -> list[int]:
    children = Path(f"/proc/{suite.process.pid}/task/{suite.process.pid}/children").read_text().split()
    return [int(pid) for pid in children if b"services.suite" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def read_events(folder: Path, number: int, event: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (folder / "data" / "logs" / f"suite-{number}.log").read_text().splitlines())
    return [line for line in lines if line["event"] == event]


async def begin(suite: Suite, http: aiohttp.ClientSession) -> tuple[str, aiohttp.ClientResponse]:
    """Ask over a new connection; return the run's id and the open stream once text has arrived."""
    response = await http.post(f"{suite.url}/api/query", json={"message": "go", "agentKey": "plain"})
    head = b""
    while b"content.delta" not in head:
        head += await response.content.readany()
    return RUN_ID.findall(head.decode())[0], response


async def test_connections_are_spread_and_any_replica_answers_for_all_runs(tmp_path: Path) -> None:
    async with asyncio.timeout(TEST_TIMEOUT_S), fresh_suite(tmp_path, form=FORM) as suite:
        suite.simulator.rules = parse_script(SLOW)
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector) as http:
            started = await asyncio.gather(*(begin(suite, http) for _ in range(CONNECTIONS)))
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as suite.http:
                events_by_reader = await asyncio.gather(*(suite.attach(started[0][0]) for _ in range(CONNECTIONS)))
            for _, response in started:
                response.close()
        assert all(fold(events) == fold(events_by_reader[0]) for events in events_by_reader)
        assert [event["type"] for event in events_by_reader[0] if event["type"] in TERMINAL] == ["run.complete"]
        assert len(find_replicas(suite)) == 2
        assert await suite.stop(signal.SIGTERM) == 0
    for number in (1, 2):
        assert read_events(tmp_path, number, "run ended")
        assert read_events(tmp_path, number, "stopped")


@pytest.mark.nightly
async def test_a_killed_replica_loses_no_run(tmp_path: Path) -> None:
    async with asyncio.timeout(TEST_TIMEOUT_S), fresh_suite(tmp_path, form=FORM) as suite:
        suite.simulator.rules = parse_script(SLOW)
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector) as http:
            started = await asyncio.gather(*(begin(suite, http) for _ in range(CONNECTIONS)))
            os.kill(find_replicas(suite)[0], signal.SIGKILL)
            whole_runs = await asyncio.gather(*(follow(suite, run_id) for run_id, _ in started))
            for _, response in started:
                response.close()
        for events in whole_runs:
            assert [event["type"] for event in events if event["type"] in TERMINAL] == ["run.complete"]
            texts = [block["text"] for block in fold(events)["blocks"].values() if block["kind"] == "content"]
            assert texts == ["Hello"]
        assert any(event["type"] == "attempt.reset" for events in whole_runs for event in events)
        assert (await suite.ask("again"))[-1]["type"] == "run.complete"


async def follow(suite: Suite, run_id: str) -> list[dict[str, Any]]:
    """Read a run to its end, reconnecting whenever the stream is cut or the request is refused."""
    while True:
        try:
            return await suite.follow(run_id)
        except (aiohttp.ClientError, AssertionError):  # Refused with 503 while the run has no owner.
            await asyncio.sleep(0.1)


async def test_options_incompatible_with_replicas_are_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "providers.json").write_text('{"providers": []}')
    folders = ("--config-dir", str(tmp_path / "config"), "--data-dir", str(tmp_path / "data"))
    command = ("up", *folders, "--port", "0", "--grpc-port", "0", FORM)
    own, others = "127.0.0.1:9464", "127.0.0.1:9465"
    metrics = await run(*command, HEADRACE_FACADE_METRICS_LISTEN=own, HEADRACE_ORCHESTRATOR_METRICS_LISTEN=others)
    refusals = {
        "--replicas needs --one-process": await run(*command, "--split"),
        "--replicas needs HEADRACE_TRANSPORT=h2": await run(*command, HEADRACE_TRANSPORT="grpcio"),
        "expected a whole number": await run(*command, HEADRACE_LLM_GATEWAY_REPLICAS="two"),
        f"{others} would be of two": metrics,
    }
    for reason, (code, _, errors) in refusals.items():
        assert code == 1
        assert reason in errors.decode()
    assert not (tmp_path / "data").exists()
