"""A command's limits, in every tier that works here: they stop the command and spare the service."""

import asyncio
import resource
from contextlib import aclosing
from pathlib import Path

import pytest
import uvloop

from services.tools.sandbox.command import OUTPUT_BYTES_MAX, CommandExit, CommandOutput, stream_command
from services.tools.sandbox.supervisor.policy import Limits, Policy
from tests.support.timing import within
from tests.support.tools.commands import bash, is_running, run_command
from tests.support.tools.tiers import TIERS

pytestmark = pytest.mark.parametrize("tier", TIERS)

FORKS = """
import os, time
made = 0
for _ in range(300):
    try:
        if os.fork() == 0: time.sleep(3600); os._exit(0)
        made += 1
    except BlockingIOError: pass
print(made, flush=True)
"""

BOMB = """
import os, time
print('up', flush=True)
for _ in range(9):
    try: os.fork()
    except BlockingIOError: pass
time.sleep(3600)
"""
"""512 processes where nothing holds it back; each sleeps."""


def python(folder: Path, code: str, tier: str, **limits: int) -> Policy:
    return Policy(
        ("python3", "-c", code),
        str(folder),
        home_parent=str(folder.parent),
        namespaces=tier == "bubblewrap",
        limits=Limits(**limits),
        timeout_s=10,
    )


async def test_the_number_of_processes_is_limited(folder: Path, tier: str) -> None:
    text, ending = await run_command(python(folder, FORKS, tier, processes=40))
    assert ending == CommandExit("exited", 0)
    assert 30 <= int(text) <= 40


async def test_ended_processes_no_longer_count(folder: Path, tier: str) -> None:
    command = "for i in $(seq 30); do /bin/true || exit 1; done"
    assert await run_command(bash(folder, command, tier, limits=Limits(processes=8))) == ("", CommandExit("exited", 0))


async def test_the_number_of_threads_is_limited(folder: Path, tier: str) -> None:
    start = "threading.Thread(target=time.sleep, args=(5,), daemon=True).start()"
    code = f"import threading, time\nfor _ in range(50): {start}"
    text, ending = await run_command(python(folder, code, tier, processes=20))
    assert "can't start new thread" in text
    assert ending == CommandExit("exited", 1)


async def test_a_fork_bomb_is_contained_and_swept(folder: Path, tier: str) -> None:
    command = python(folder, BOMB + "# 1030.5", tier, processes=40)
    async with asyncio.timeout(100), aclosing(stream_command(command)) as stream:
        assert await anext(stream) == CommandOutput("stdout", "up\n")
        await asyncio.sleep(0.3)
        async with within(1):
            await stream.aclose()
    assert not is_running(BOMB + "# 1030.5")


RESERVES = """
import mmap
reserved = mmap.mmap(-1, 10 * 2**30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0)
print("reserved", flush=True)
"""
"""What WebAssembly does for each memory, in Node above all."""


async def test_memory_is_limited_and_address_space_is_not(folder: Path, tier: str) -> None:
    text, _ = await run_command(python(folder, RESERVES + "bytearray(10**9)", tier, memory_bytes=512 * 1024**2))
    assert text.startswith("reserved\n")
    assert "MemoryError" in text


async def test_a_files_size_is_limited(folder: Path, tier: str) -> None:
    text, _ = await run_command(python(folder, "open('big', 'wb').write(bytes(2_000_000))", tier, file_bytes=1_000_000))
    assert (folder / "big").stat().st_size == 1_000_000, text


async def test_open_files_are_limited(folder: Path, tier: str) -> None:
    text, _ = await run_command(python(folder, "[open('/dev/null') for _ in range(100)]", tier, open_files=50))
    assert "Too many open files" in text


DESCRIPTORS = """
import os
seen = []
for fd in range(512):
    try: os.fstat(fd); seen.append(fd)
    except OSError: pass
print(seen)
"""


async def test_a_command_inherits_only_its_three_standard_streams(folder: Path, tier: str) -> None:
    # uvloop, on which the service runs, passes on descriptors that asyncio closes.
    policy = python(folder, DESCRIPTORS, tier)
    for run in (run_command(policy), asyncio.to_thread(uvloop.run, run_command(policy))):
        assert await run == ("[0, 1, 2]\n", CommandExit("exited", 0))


async def test_processor_time_is_limited(folder: Path, tier: str) -> None:
    # On a busy machine a second of CPU time may take long.
    policy = python(folder, "while True: pass", tier, cpu_s=1)._replace(timeout_s=250)
    _, ending = await run_command(policy)
    assert ending.status in (-9, -24)
    assert ending.reason == "exited"


async def test_output_is_cut_and_buffered_in_bounded_memory(folder: Path, tier: str) -> None:
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    taken, ending = 0, CommandExit("failed")
    command = bash(folder, "head -c 200000000 /dev/zero", tier)
    async with asyncio.timeout(100), aclosing(stream_command(command)) as stream:
        async for event in stream:
            if isinstance(event, CommandOutput):
                taken += len(event.text)
            else:
                ending = event
    assert ending == CommandExit("flood")
    assert OUTPUT_BYTES_MAX <= taken < OUTPUT_BYTES_MAX + 1024 * 1024
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 32 * 1024
