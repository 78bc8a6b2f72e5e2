"""The suite on a full disk, under load: it reports the full disk, and serves again once there is space.

FULL_DISK_S is the minimum time for which the disk stays full.
"""

import asyncio
import json
import os
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from services.simulator.server import simulator
from tests.support.order import TERMINAL, Event, fold
from tests.support.pairing import assert_paired
from tests.support.small_disk import SmallDisk, needs_mount, on_small_disk
from tests.support.suite import COMMAND, MODEL, StreamCutError, Suite, is_ready, read_events, running, write_config

FULL_S = float(os.environ.get("FULL_DISK_S", "0"))
SERVES_AGAIN_S = 15.0
"""Checked only if FULL_DISK_S is set: on a busy machine the time is not checked."""

WORKERS = 4
DISK_BYTES, DISK_INODES = 32 << 20, 2000

RESERVE_BYTES = 96 << 20
FILL = "for ((i = 0; i < 300; i++)); do head -c 1000000 /dev/zero > $i; sleep 0.01; done"

pytestmark = needs_mount


@dataclass
class Observations:
    """What readers got, and how often the tool had acted for a run when its reader got the end."""

    ended: dict[str, list[Event]] = field(default_factory=dict[str, list[Event]])
    """Events by run id."""
    acted: Counter[str] = field(default_factory=Counter[str])
    """Effects by run id."""
    refused: Counter[str] = field(default_factory=Counter[str])
    """Refusals by reason."""

    @property
    def completed(self) -> int:
        return sum(events[-1]["type"] == "run.complete" for events in self.ended.values())


@pytest.mark.nightly
@pytest.mark.parametrize("resource", ["data", "inodes", "logs"])
async def test_a_full_disk_under_load_is_reported_and_recovered_from(tmp_path: Path, resource: str) -> None:
    small, log, effects = tmp_path / ("log" if resource == "logs" else "data"), tmp_path / "log", tmp_path / "effects"
    small.mkdir()
    log.mkdir(exist_ok=True)
    effects.touch()
    command = ("sh", "-c", 'exec "$@" 2>>"$0"/stderr', str(log), sys.executable, "-m", "headrace.cli")
    wrapped = on_small_disk(small, *command, size=DISK_BYTES, inodes=DISK_INODES)
    sandbox = {
        "HEADRACE_TOOLS_SANDBOX": "none",
        "HEADRACE_ALLOW_UNSANDBOXED": "true",
        "HEADRACE_TOOLS_DISK_RESERVE_BYTES": "0",
    }
    async with asyncio.timeout(900 + FULL_S), simulator() as sim:
        configure(tmp_path / "config", effects)
        write_config(tmp_path / "config", sim)
        async with running(tmp_path / "config", tmp_path / "data", sim, command=wrapped, **sandbox) as suite:
            play(suite)
            disk = SmallDisk.of_process(suite.process.pid, small)
            observations, stop = Observations(), asyncio.Event()
            async with asyncio.TaskGroup() as group:
                for _ in range(WORKERS):
                    group.create_task(work(suite, effects, observations, stop))
                await wait_for_completed(observations, WORKERS)
                disk.fill("inodes" if resource == "inodes" else "bytes")
                filled = time.monotonic()
                if resource == "logs":
                    await wait_for_completed(observations, 2 * WORKERS)
                else:
                    await wait_for_refusals(suite, observations)
                await asyncio.sleep(FULL_S - (time.monotonic() - filled))
                refused = observations.refused.copy()
                disk.make_room()
                emptied = time.monotonic()
                await wait_until_ready(suite)
                await wait_for_completed(observations, WORKERS)
                passed_s = time.monotonic() - emptied
                assert not FULL_S or passed_s < SERVES_AGAIN_S, refused
                stop.set()
            await check_runs(suite, effects, observations)
            assert set(observations.refused) <= {"DISK_FULL", "OVERLOADED"}, observations.refused
            if resource == "logs":
                assert not observations.refused
                assert all(events[-1]["type"] == "run.complete" for events in observations.ended.values())


@pytest.mark.nightly
async def test_a_command_filling_the_disk_leaves_room_for_chats(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    wrapped = on_small_disk(data, *COMMAND, size=2 * RESERVE_BYTES, inodes=DISK_INODES)
    settings = {"HEADRACE_TOOLS_SANDBOX": "process", "HEADRACE_TOOLS_DISK_RESERVE_BYTES": str(RESERVE_BYTES)}
    async with (
        asyncio.timeout(600),
        simulator() as sim,
        running(tmp_path / "config", data, sim, command=wrapped, **settings) as suite,
    ):
        disk = SmallDisk.of_process(suite.process.pid, data)
        bash = {"toolCall": "_bash_", "id": "call_1", "arguments": [json.dumps({"command": FILL})]}
        suite.play({"match": {"turn": 1, "text": "^fill"}, "steps": [bash]}, {"steps": [{"content": "fine"}]})
        for message, agent in (("fill", "react"), ("fill", "react"), ("go", "plain")):
            events = await suite.ask(message, agent)
            assert events[-1]["type"] == "run.complete", events[-1]
            ends = [str(event["result"]) for event in events if event["type"] == "tool.result"]
            assert [end for end in ends if "disk" not in end] == []
        assert await is_ready(suite)
        free = os.statvfs(disk.path)
        assert free.f_bavail * free.f_frsize < RESERVE_BYTES


def configure(config: Path, effects: Path) -> None:
    """Write a tool that records the chat for which it acted, and an agent that calls it."""
    command = ["sh", "-c", f'basename "$PWD" >>{effects}; echo acted']
    schema = {"type": "object", "properties": {}}
    tool = {"type": "function", "name": "act", "description": "Acts", "effect": "once", "parameters": schema}
    agent = {"mode": "REACT", "modelConfig": MODEL, "toolConfig": {"backends": ["act"]}, "react": {}}
    for folder, name, content in (
        ("tools", "act.backend", {"tools": [tool | {"command": command}]}),
        ("agents", "act.json", agent),
    ):
        (config / folder).mkdir(parents=True, exist_ok=True)
        (config / folder / name).write_text(json.dumps(content))


def play(suite: Suite) -> None:
    act = {"toolCall": "act", "id": "call_1", "arguments": ["{}"]}
    suite.play({"match": {"turn": 1, "text": "^go"}, "steps": [act]}, {"steps": [{"content": "fi"}, {"content": "ne"}]})


async def work(suite: Suite, effects: Path, observations: Observations, stop: asyncio.Event) -> None:
    """Run one query after the other, each in a new chat, and follow each to its end."""
    while not stop.is_set():
        body = {"message": "go", "agentKey": "act"}
        events: list[Event] = []
        async with suite.http.post(f"{suite.url}/api/query", json=body) as response:
            if response.status != 200:
                assert response.status in (429, 503), await response.text()
                observations.refused[(await response.json())["error"]["code"]] += 1
                await asyncio.sleep(0.2)
                continue
            with suppress(StreamCutError):
                async for event in read_events(response):
                    events.append(event)
        run_id = next(event["runId"] for event in events if "runId" in event)
        while events[-1]["type"] not in TERMINAL:
            with suppress(StreamCutError):
                events += await suite.attach(run_id, events[-1]["seq"])
            await asyncio.sleep(0.1)
        observations.ended[run_id] = events
        observations.acted[run_id] = count_effects(effects)[events[0]["chatId"]]


def count_effects(effects: Path) -> Counter[str]:
    """Count the effects of each chat."""
    return Counter(effects.read_text().split())


async def wait_for_completed(seen: Observations, count: int) -> None:
    """Wait until this number of further runs have completed."""
    aim = seen.completed + count
    while seen.completed < aim:
        await asyncio.sleep(0.05)


async def wait_for_refusals(suite: Suite, seen: Observations) -> None:
    """Wait until queries are refused with DISK_FULL and the suite is not ready."""
    while not seen.refused["DISK_FULL"] or await is_ready(suite):
        await asyncio.sleep(0.05)


async def wait_until_ready(suite: Suite) -> None:
    while not await is_ready(suite):
        await asyncio.sleep(0.05)


async def check_runs(suite: Suite, effects: Path, observations: Observations) -> None:
    """Check that each run has one end, that its tool acted at most once, and that reading it again gives the same."""
    acted = count_effects(effects)
    for run_id, events in observations.ended.items():
        assert [event["type"] for event in events if event["type"] in TERMINAL] == [events[-1]["type"]]
        assert acted[events[0]["chatId"]] == observations.acted[run_id] <= 1, events
        events_again = await suite.attach(run_id)
        assert fold(events_again) == fold(events), events
    for request in suite.requests():
        assert_paired(request["messages"])
