"""Every service's process is told to stop at many moments of its start; signals it does not handle are ignored."""

import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from itertools import product
from pathlib import Path

import pytest

from tests.support.programs import starting
from tests.support.tiers import check_only

SERVICES = ("facade", "llm_gateway", "memory", "orchestrator", "simulator", "tools")

MOMENTS = ("begins to import", "has imported much", "has read its settings")

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

SLOW = re.compile(rb"\| *(headrace|grpc|asyncio|uvloop|structlog)(\.\w+)*$")
"""Matches lines of `-X importtime` which show that the program's own imports have begun."""

LINES_LATER = 150


def is_reached(moment: str, line: bytes, slow_lines: int) -> bool:
    if moment == "has read its settings":
        return b"settings in force" in line
    return slow_lines >= (1 if moment == "begins to import" else LINES_LATER)


def ignore_all() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


@asynccontextmanager
async def starting_service(
    service: str, folder: Path, moment: str, *around: str
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Start a process that reports its imports on standard error; yield it at this moment of its start."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    settings = {
        f"HEADRACE_{service.upper()}_LISTEN": f"unix:{folder}/socket",
        "HEADRACE_FACADE_PORT": "0",
        "HEADRACE_DATA_DIR": str(folder / "data"),
        "HEADRACE_CONFIG_DIR": str(folder),
    }
    if service == "facade":
        del settings["HEADRACE_FACADE_LISTEN"]
    elif service == "simulator":
        settings = {}
    words = ("--port", "0") if service == "simulator" else ()
    async with asyncio.timeout(300):
        process = await asyncio.create_subprocess_exec(
            *(*around, sys.executable, "-X", "importtime", "-m", f"services.{service}", *words),
            env=inherited | settings,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            preexec_fn=ignore_all,
        )
        try:
            assert process.stderr is not None
            slow_lines = 0
            while line := await process.stderr.readline():
                slow_lines += slow_lines > 0 or SLOW.search(line.rstrip()) is not None
                if is_reached(moment, line, slow_lines):
                    break
            else:
                raise AssertionError(f"ended before it {moment}")
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def find_child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


async def read_to_end(process: asyncio.subprocess.Process) -> int:
    """Read to the end, and return the exit code."""
    await process.communicate()
    assert process.returncode is not None
    return process.returncode


IN_CHECK = {*zip(SERVICES, [*MOMENTS, *MOMENTS[:2], MOMENTS[2]], strict=True)}


@pytest.mark.parametrize(("service", "moment"), check_only(product(SERVICES, MOMENTS), kept=IN_CHECK))
async def test_a_service_told_to_stop_while_it_starts_ends(tmp_path: Path, service: str, moment: str) -> None:
    if (service, moment) == ("simulator", MOMENTS[-1]):
        pytest.skip("the simulator has no settings")
    async with starting_service(service, tmp_path, moment) as process:
        process.send_signal(signal.SIGTERM)
        assert await read_to_end(process) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="a process namespace needs root")
@pytest.mark.parametrize(
    ("moment", "number"), check_only(product(MOMENTS, SIGNALS), kept={*zip(MOMENTS, SIGNALS, strict=True)})
)
async def test_the_first_process_of_a_container_ends_when_told_to_stop(
    tmp_path: Path, moment: str, number: signal.Signals
) -> None:
    async with starting_service("llm_gateway", tmp_path, moment, "unshare", "-p", "-f", "--kill-child") as process:
        os.kill(find_child(process.pid), number)
        assert await read_to_end(process) == 0


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("tini"), reason="needs root and tini")
@pytest.mark.parametrize(
    "wait_s", [0.0, *(pytest.param(wait_s, marks=pytest.mark.nightly) for wait_s in (0.01, 0.05, 0.2))]
)
async def test_under_tini_no_moment_is_too_early_for_a_stop(wait_s: float) -> None:
    entry = ("unshare", "-p", "-f", "--kill-child", "tini", "--")
    async with asyncio.timeout(300):
        async with starting(*entry, sys.executable, "-m", "services.simulator", "--port", "0") as process:
            while not has_tini_started(process.pid):
                await asyncio.sleep(0.0005)
            await asyncio.sleep(wait_s)
            os.kill(find_child(process.pid), signal.SIGTERM)
            assert await process.wait() in (0, 128 + signal.SIGTERM)


def has_tini_started(pid: int) -> bool:
    """Return whether the child is tini and blocks signals, which is the first thing it does.

    While it waits for them the kernel shows none as blocked; it has a child of its own by then.
    """
    try:
        tini = find_child(pid)
        status = Path(f"/proc/{tini}/status").read_text()
        children = Path(f"/proc/{tini}/task/{tini}/children").read_text()
    except (OSError, ValueError):
        return False
    blocked = re.search(r"^SigBlk:\s*(\w+)$", status, re.MULTILINE)
    blocks_signals = blocked is not None and int(blocked[1], 16) != 0
    return status.startswith("Name:\ttini\n") and (blocks_signals or bool(children))
