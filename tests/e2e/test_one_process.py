"""`headrace up --one-process`: which services share a process, and that logs still distinguish them."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from headrace.client import Client
from tests.support.programs import run_to_end
from tests.support.suite import TEST_TIMEOUT_S, fresh_suite

OWN = ["memory", "llm_gateway", "orchestrator", "facade"]


def read_log(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_services_share_a_process_and_call_each_other_in_memory(tmp_path: Path) -> None:
    debug = {"HEADRACE_LOG_LEVEL": "DEBUG"}  # Calls between services are logged at DEBUG only.
    async with asyncio.timeout(TEST_TIMEOUT_S), fresh_suite(tmp_path, form="--one-process", **debug) as suite:
        assert {*suite.services()} == {"suite", "tools"}
        assert (await suite.ask("What is the weather in Rome?", "react"))[-1]["type"] == "run.complete"
        async with Client(suite.grpc) as client, client.ask("hello", agent_key="plain") as deltas:
            assert [delta async for delta in deltas][-1].HasField("run_complete")
        assert (await suite.get("/readyz", all=""))[0] == 200
        assert await suite.stop(signal.SIGTERM) == 0
    lines = read_log(tmp_path / "data" / "logs" / "suite.log")
    for event in ("settings in force", "serving"):
        assert [line["service"] for line in lines if line["event"] == event] == OWN
    # A service stops before those that it calls.
    assert [line["service"] for line in lines if line["event"] == "stopped"] == OWN[::-1]
    calls = [line for line in lines if line["event"] == "rpc done"]
    # Calls of the tools service arrive over its socket, calls of the client over the network.
    inner = {line["method"] for line in calls if line["peer"].startswith("local:")}
    assert {"/headrace.v1.AgentService/Query", "/headrace.v1.LlmService/StreamChat"} <= inner
    assert {line["service"] for line in calls if line["method"].startswith("/headrace.v1.LlmService/")} == {
        "llm_gateway"
    }
    assert [line["method"] for line in calls if line["peer"].startswith("ipv4:")] == ["/headrace.v1.AgentService/Query"]
    assert not [line for line in lines if line["level"] in ("error", "critical")]


async def test_wrong_settings_of_several_services_are_reported_together(tmp_path: Path) -> None:
    wrong = {"HEADRACE_MEMORY_CHAT_K": "x", "HEADRACE_FACADE_IDLE_S": "y", "HEADRACE_DRAIN_S": "z"}
    lines = await run_suite(wrong)
    assert "memory: HEADRACE_MEMORY_CHAT_K: 'x': expected a whole number" in lines
    assert "facade: HEADRACE_FACADE_IDLE_S: 'y': expected a number" in lines
    assert [line for line in lines if "HEADRACE_DRAIN_S" in line] == [
        "memory: HEADRACE_DRAIN_S: 'z': expected a number"
    ]


async def run_suite(env: dict[str, str]) -> list[str]:
    """Return the lines on standard error of a process that refuses its settings."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    command = (sys.executable, "-m", "services.suite")
    code, _, stderr = await run_to_end(*command, env=inherited | env, timeout_s=TEST_TIMEOUT_S)
    assert code == 2
    return stderr.decode().splitlines()
