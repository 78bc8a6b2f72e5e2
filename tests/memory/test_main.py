"""The service as a process: one owner per folder, settings checked at start, and an exit if its writer is lost."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import STDOUT
from pathlib import Path

import pytest

from services.memory.config import Config
from services.runtime.ending import LOST_TASK, WRONG_CONFIGURATION
from services.runtime.process.config import load_settings
from tests.support.programs import run_to_end
from tests.support.rights import list_wide, make_wide


async def start(folder: Path, **settings: str) -> asyncio.subprocess.Process:
    env = {"PATH": os.environ["PATH"], "HEADRACE_DATA_DIR": str(folder), "HEADRACE_MEMORY_LISTEN": "127.0.0.1:0"}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.memory", env=env | settings, stderr=asyncio.subprocess.PIPE
    )


async def test_a_second_service_over_the_same_folder_ends_with_a_clear_error(tmp_path: Path) -> None:
    async with asyncio.timeout(300):
        first = await start(tmp_path)
        assert first.stderr is not None
        while b'"serving"' not in (line := await first.stderr.readline()):
            assert line, "the first one must come up"
        second = await start(tmp_path)
        _, errors = await second.communicate()
        assert second.returncode == WRONG_CONFIGURATION
        assert b"belongs to another memory service" in errors
        assert b"Traceback" not in errors
        first.send_signal(signal.SIGTERM)
        _, errors = await first.communicate()
        assert first.returncode == 0, errors


async def test_the_files_are_not_accessible_to_other_users_of_the_machine(tmp_path: Path) -> None:
    """Permissions that an older version left open are corrected at the start; no new file is open to others."""
    make_wide(tmp_path, tmp_path / "chats")
    async with asyncio.timeout(300):
        process = await start(tmp_path)
        assert process.stderr is not None
        while b'"serving"' not in (line := await process.stderr.readline()):
            assert line, "it must come up"
        process.send_signal(signal.SIGTERM)
        await process.communicate()
    assert (tmp_path / "chats" / "index.sqlite").exists()
    assert list_wide(tmp_path) == []


async def test_a_window_out_of_bounds_is_rejected_at_start(tmp_path: Path) -> None:
    async with asyncio.timeout(300):
        process = await start(tmp_path, MAX_MESSAGE_HISTORY="5")
        _, errors = await process.communicate()
    assert process.returncode == 2
    assert b"expected 10 or more" in errors


@pytest.mark.parametrize(
    ("env", "folder"),
    [
        ({}, Path(".data/chats")),
        ({"HEADRACE_DATA_DIR": "/d"}, Path("/d/chats")),
        ({"HEADRACE_DATA_DIR": "/d", "MEMORY_CHAT_DIR": "/c"}, Path("/c")),
        ({"HEADRACE_MEMORY_CHAT_DIR": "/c"}, Path("/c")),
    ],
)
def test_the_settings_choose_the_folder_of_the_logs(env: dict[str, str], folder: Path) -> None:
    assert load_settings(Config, "MEMORY", env).logs_dir == folder


LOSING = """
import asyncio, os, sys
from pathlib import Path
from services.runtime.process.logs import configure_logging
from tests.support.memory.serving import memory_over
from tests.support.memory.messages import user
from tests.support.memory.writing import step_line

class Lost(BaseException):
    "No Exception, of which none ends the writer."

def sync(fd):
    if lost:
        raise Lost
    os.fdatasync(fd)

async def main():
    async with memory_over(Path(sys.argv[1]), sync=sync) as memory:
        chat = await memory.begin()
        lost.append(True)
        await memory.append(*chat, step_line(user("a")))

lost = []
configure_logging("INFO", "memory")
asyncio.run(main())
"""


async def test_a_lost_writer_ends_its_process(folder: Path) -> None:
    async with asyncio.timeout(100):
        code, printed, _ = await run_to_end(sys.executable, "-c", LOSING, folder, stderr=STDOUT)
    assert code == LOST_TASK, printed
    assert b"Commits.run_commits" in printed
