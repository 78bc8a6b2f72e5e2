"""A writer of logs that is lost takes its process with it: nobody waits for an answer that will never come."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from services.runtime.ending import LOST_TASK

LOSING = """
import asyncio, os, sys
from pathlib import Path
from services.runtime.process.logs import configure_logging
from tests.support.memory.serving import memory_over
from tests.support.memory.writing import step_line, user

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
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", LOSING, str(folder), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        try:
            printed, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
    assert process.returncode == LOST_TASK, printed
    assert b"Commits.run_commits" in printed
