"""The service as a process: one owner for a folder, settings checked at start."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from services.memory.config import Config
from services.runtime.ending import WRONG_CONFIGURATION
from services.runtime.process.config import load_settings


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


async def test_a_window_out_of_bounds_is_refused_at_start(tmp_path: Path) -> None:
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
def test_the_logs_are_where_the_settings_say(env: dict[str, str], folder: Path) -> None:
    assert load_settings(Config, "MEMORY", env).logs_dir == folder
