"""A command begins when it is confined and the service has recorded that, not before, in every tier that works here."""

import asyncio
import os
import signal
from contextlib import aclosing
from pathlib import Path

import pytest

from headrace.errors import Overloaded
from services.tools.sandbox.command import CommandExit, CommandOutput, stream_command
from services.tools.sandbox.supervisor.policy import Policy
from tests.support.tools.processes import nothing_running, processes
from tests.support.tools.tiers import TIERS

pytestmark = pytest.mark.parametrize("tier", TIERS)


@pytest.fixture
def policy(tmp_path: Path, tier: str) -> Policy:
    (tmp_path / "workspace").mkdir()
    command = ("bash", "-c", "touch begun; echo up; sleep 1070.5")
    return Policy(command, str(tmp_path / "workspace"), home_parent=str(tmp_path), namespaces=tier == "bubblewrap")


async def test_it_begins_after_its_record(policy: Policy) -> None:
    begun = Path(policy.folder, "begun")

    async def record() -> None:
        assert processes()
        assert not begun.exists()  # noqa: ASYNC240 - it is there at once or never

    async with asyncio.timeout(100), aclosing(stream_command(policy, None, record)) as stream:
        assert await anext(stream) == CommandOutput("stdout", "up\n")
        assert begun.exists()  # noqa: ASYNC240
    await nothing_running()


async def test_without_a_record_it_never_begins(policy: Policy) -> None:
    async def refuse() -> None:
        raise Overloaded("the disk is full")

    async with asyncio.timeout(100):
        with pytest.raises(Overloaded, match="the disk is full"):
            await anext(stream_command(policy, None, refuse))
        await nothing_running()
    assert not Path(policy.folder, "begun").exists()  # noqa: ASYNC240


async def test_whoever_leaves_before_leaves_nothing(policy: Policy) -> None:
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
        await nothing_running()
    assert not Path(policy.folder, "begun").exists()  # noqa: ASYNC240


async def test_a_supervisor_that_is_killed_before_is_told(policy: Policy) -> None:
    async def kill() -> None:
        (outermost,) = processes()
        os.kill(outermost, signal.SIGKILL)
        await nothing_running()

    async with asyncio.timeout(100), aclosing(stream_command(policy, None, kill)) as stream:
        assert await anext(stream) == CommandExit("failed", error="its supervisor was killed")
    await nothing_running()
