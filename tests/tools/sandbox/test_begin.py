"""A command starts only once it is confined and the service has recorded it, in every tier that works here."""

import asyncio
import os
import signal
from contextlib import aclosing
from pathlib import Path

import pytest

from headrace.errors import Overloaded
from services.tools.sandbox.command import CommandExit, CommandOutput, stream_command
from services.tools.sandbox.supervisor.policy import Policy
from tests.support.tools.processes import processes, wait_for_no_processes
from tests.support.tools.tiers import TIERS

pytestmark = pytest.mark.parametrize("tier", TIERS)


@pytest.fixture
def policy(tmp_path: Path, tier: str) -> Policy:
    (tmp_path / "workspace").mkdir()
    command = ("bash", "-c", "touch begun; echo up; sleep 1070.5")
    return Policy(command, str(tmp_path / "workspace"), home_parent=str(tmp_path), namespaces=tier == "bubblewrap")


async def test_a_command_starts_after_it_is_recorded(policy: Policy) -> None:
    marker = Path(policy.folder, "begun")

    async def record() -> None:
        assert processes()
        assert not marker.exists()  # noqa: ASYNC240 - it is there at once or never

    async with asyncio.timeout(100), aclosing(stream_command(policy, None, record)) as stream:
        assert await anext(stream) == CommandOutput("stdout", "up\n")
        assert marker.exists()  # noqa: ASYNC240
    await wait_for_no_processes()


async def test_a_command_never_starts_without_its_record(policy: Policy) -> None:
    async def refuse() -> None:
        raise Overloaded("the disk is full")

    async with asyncio.timeout(100):
        with pytest.raises(Overloaded, match="the disk is full"):
            await anext(stream_command(policy, None, refuse))
        await wait_for_no_processes()
    assert not Path(policy.folder, "begun").exists()  # noqa: ASYNC240


async def test_cancelling_before_the_start_leaves_no_process(policy: Policy) -> None:
    recording = asyncio.Event()

    async def record_for_ever() -> None:
        recording.set()
        await asyncio.Event().wait()

    async def read() -> None:
        async with aclosing(stream_command(policy, None, record_for_ever)) as stream:
            await anext(stream)

    async with asyncio.timeout(100):
        reader = asyncio.create_task(read())
        await recording.wait()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        await wait_for_no_processes()
    assert not Path(policy.folder, "begun").exists()  # noqa: ASYNC240


async def test_killing_the_supervisor_before_the_start_is_reported(policy: Policy) -> None:
    async def kill() -> None:
        (outermost,) = processes()
        os.kill(outermost, signal.SIGKILL)
        await wait_for_no_processes()

    async with asyncio.timeout(100), aclosing(stream_command(policy, None, kill)) as stream:
        assert await anext(stream) == CommandExit("failed", error="its supervisor was killed")
    await wait_for_no_processes()
