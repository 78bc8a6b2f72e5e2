"""A service that crashes: `python -m tests.tools.sandbox.dying DATA_DIR WORKSPACE MARKER` starts a command, which
starts a daemon, suspends their supervisor, so that it does not notice, and kills itself.
"""

import asyncio
import os
import signal
import sys
from contextlib import aclosing
from pathlib import Path

from services.tools.sandbox.command import stream_command
from services.tools.sandbox.leftovers import make_mark
from services.tools.sandbox.supervisor.policy import Policy


async def main(data_dir: str, folder: str, marker: str) -> None:
    command = ("bash", "-c", f"touch ~/a; setsid sleep {marker} & echo up; sleep {marker}")
    async with aclosing(stream_command(Policy(command, folder, mark=make_mark(Path(data_dir))))) as stream:
        await anext(stream)
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text()  # noqa: ASYNC240
        os.kill(int(children), signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
