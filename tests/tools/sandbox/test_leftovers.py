"""The next service with the same data folder sweeps a killed service's leftovers, and nothing else."""

import asyncio
import signal
import sys
from pathlib import Path

from services.tools.sandbox import leftovers
from services.tools.sandbox.supervisor.policy import HOME_PARENT
from tests.support.programs import run_to_end
from tests.support.tools.commands import is_running
from tests.support.tools.suite import Serve


async def crash_service(data_dir: Path, marker: str) -> None:
    """Run a service on `data_dir` that is killed; commands that sleep for `marker` remain."""
    workspace = data_dir / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    command = (sys.executable, "-m", "tests.tools.sandbox.dying", data_dir, workspace, marker)
    code, _, _ = await run_to_end(*command, stdout=None, stderr=None)
    assert code == -signal.SIGKILL
    async with asyncio.timeout(100):
        while not is_running(marker):  # what it left is beginning yet
            await asyncio.sleep(0.01)


def list_homes(data_dir: Path) -> list[str]:
    prefix = leftovers.make_mark(data_dir).rsplit("-", 2)[0]
    return [path.name for path in Path(HOME_PARENT).glob(f"{prefix}-*")]


async def test_processes_and_folders_of_a_killed_service_are_swept_at_the_next_start(
    serve: Serve, tmp_path: Path
) -> None:
    await crash_service(tmp_path, "1080.5")
    assert len(list_homes(tmp_path)) == 1
    (Path(HOME_PARENT) / f"{list_homes(tmp_path)[0]}-selftest-x").mkdir()
    async with serve() as suite:
        while is_running("1080.5") or list_homes(tmp_path):
            await asyncio.sleep(0.02)
        _, outcome = await suite.execute("_bash_", '{"command": "echo works"}')
    assert outcome.result == "works\n"


async def test_leftovers_of_other_data_folders_are_not_swept(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    await crash_service(theirs, "1081.5")
    try:
        await leftovers.sweep_leftovers(ours)
        assert is_running("1081.5")
        assert len(list_homes(theirs)) == 1
    finally:
        await leftovers.sweep_leftovers(theirs)
    assert not is_running("1081.5")
    assert not list_homes(theirs)


async def test_a_sweep_spares_the_commands_of_a_running_service(serve: Serve, tmp_path: Path) -> None:
    command = '{"command": "touch ~/a; touch up; while [ ! -e go ]; do sleep 0.01; done; ls ~"}'
    async with serve() as suite:
        running = asyncio.create_task(suite.execute("_bash_", command))
        while not (suite.workspace / "up").exists():
            await asyncio.sleep(0.01)
        await leftovers.sweep_leftovers(tmp_path)
        (suite.workspace / "go").touch()
        _, outcome = await running
    assert outcome.result == "a\n"


async def test_a_bwrap_interrupted_during_its_start_is_ended(tmp_path: Path) -> None:
    # bwrap's second process waits for ever for the first, which died with the service; any program stands in for it.
    mark = f"{leftovers.make_mark(tmp_path)}0"
    orphan = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(3600)", mark)
    await leftovers.sweep_leftovers(tmp_path)
    async with asyncio.timeout(100):
        assert await orphan.wait() == -signal.SIGKILL
