"""`python -m tests.memory.storage.files.serve_killed FOLDER` serves a folder and prints how many chats its index has
once it has read some of a backlog; the caller kills it then.
"""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from services.memory.storage.files.backlog import Backlog, Flush
from tests.support.memory.serving import memory_over


async def take_steps(backlog: Backlog, is_behind: Callable[[], bool], flush: Flush) -> None:
    await backlog.take_step()
    progress = backlog.get_progress()
    assert progress is not None
    sys.stdout.write(f"done {progress.chats_done}\n")
    sys.stdout.flush()
    while backlog.get_progress() is not None:
        await backlog.take_step()
        await asyncio.sleep(0.05)


async def main(folder: Path) -> None:
    async with memory_over(folder, run_backlog=take_steps):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
