"""The suite on a disk without room, under work: it says so, and serves by itself when there is room again.

FULL_DISK_S is for how long there is no room, at least until that is told.
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
"""Looked at where there was no room for long: a check on a busy machine is not timed."""

WORKERS = 4
DISK_BYTES, DISK_INODES = 32 << 20, 2000

RESERVE_BYTES = 96 << 20
FILL = "for ((i = 0; i < 300; i++)); do head -c 1000000 /dev/zero > $i; sleep 0.01; done"

pytestmark = needs_mount


@dataclass
class Seen:
    """What readers were told, and what the tool had done for a run when its reader was told its end."""

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
@pytest.mark.parametrize("what", ["data", "inodes", "logs"])
async def test_a_full_disk_under_work_is_told_and_left(tmp_path: Path, what: str) -> None:
    small, log, effects = tmp_path / ("log" if what == "logs" else "data"), tmp_path / "log", tmp_path / "effects"
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
            seen, stop = Seen(), asyncio.Event()
            async with asyncio.TaskGroup() as group:
                for _ in range(WORKERS):
                    group.create_task(work(suite, effects, seen, stop))
                await completed(seen, WORKERS)
                disk.fill("inodes" if what == "inodes" else "bytes")
                filled = time.monotonic()
                if what == "logs":
                    await completed(seen, 2 * WORKERS)
                else:
                    await told(suite, seen)
                await asyncio.sleep(FULL_S - (time.monotonic() - filled))
                refused = seen.refused.copy()
                disk.make_room()
                emptied = time.monotonic()
                await until_ready(suite)
                await completed(seen, WORKERS)
                passed_s = time.monotonic() - emptied
                assert not FULL_S or passed_s < SERVES_AGAIN_S, refused
                stop.set()
            await judge(suite, effects, seen)
            assert set(seen.refused) <= {"DISK_FULL", "OVERLOADED"}, seen.refused
            if what == "logs":
                assert not seen.refused
                assert all(events[-1]["type"] == "run.complete" for events in seen.ended.values())


@pytest.mark.nightly
async def test_what_commands_fill_leaves_room_for_chats(tmp_path: Path) -> None:
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
            seen = await suite.ask(message, agent)
            assert seen[-1]["type"] == "run.complete", seen[-1]
            ends = [str(event["result"]) for event in seen if event["type"] == "tool.result"]
            assert [end for end in ends if "disk" not in end] == []
        assert await is_ready(suite)
        free = os.statvfs(disk.path)
        assert free.f_bavail * free.f_frsize < RESERVE_BYTES


def configure(config: Path, effects: Path) -> None:
    """A tool that notes the chat for which it acted, and an agent that calls it."""
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


async def work(suite: Suite, effects: Path, seen: Seen, stop: asyncio.Event) -> None:
    """Ask one query after the other, each in a chat of its own, and follow each to its end."""
    while not stop.is_set():
        body = {"message": "go", "agentKey": "act"}
        events: list[Event] = []
        async with suite.http.post(f"{suite.url}/api/query", json=body) as response:
            if response.status != 200:
                assert response.status in (429, 503), await response.text()
                seen.refused[(await response.json())["error"]["code"]] += 1
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
        seen.ended[run_id] = events
        seen.acted[run_id] = count_effects(effects)[events[0]["chatId"]]


def count_effects(effects: Path) -> Counter[str]:
    """By chat."""
    return Counter(effects.read_text().split())


async def completed(seen: Seen, count: int) -> None:
    """Return when so many more runs have completed."""
    aim = seen.completed + count
    while seen.completed < aim:
        await asyncio.sleep(0.05)


async def told(suite: Suite, seen: Seen) -> None:
    """Return when callers and probes know that there is no room."""
    while not seen.refused["DISK_FULL"] or await is_ready(suite):
        await asyncio.sleep(0.05)


async def until_ready(suite: Suite) -> None:
    while not await is_ready(suite):
        await asyncio.sleep(0.05)


async def judge(suite: Suite, effects: Path, seen: Seen) -> None:
    """Whatever a reader was told to have ended is over, once; whoever reads again is told the same."""
    acted = count_effects(effects)
    for run_id, events in seen.ended.items():
        assert [event["type"] for event in events if event["type"] in TERMINAL] == [events[-1]["type"]]
        assert acted[events[0]["chatId"]] == seen.acted[run_id] <= 1, events
        again = await suite.attach(run_id)
        assert fold(again) == fold(events), events
    for request in suite.requests():
        assert_paired(request["messages"])
