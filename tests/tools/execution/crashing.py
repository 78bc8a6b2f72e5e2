"""A tools service that crashes: `python -m tests.tools.execution.crashing FOLDER STEP` serves FOLDER/tools.sock and
kills itself just before the record's write number STEP becomes durable. A STEP beyond the last write means after it;
0 means never.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from services.runtime.process.config import ServerSettings
from services.tools.catalogue.catalogue import Catalogue
from services.tools.config import Config
from services.tools.sandbox.tiers import Sandbox
from services.tools.server import tool_server

WRITES = 5
"""Of one call in a new chat: the chat's folder, the start, its name, the end, its name."""


def killing(folder: Path, step: int) -> Callable[[int], None]:
    """Return an fsync that at call number `step` writes the service's child processes to `children` and kills it."""
    count = 0

    def sync(fd: int) -> None:
        nonlocal count
        count += 1
        if count == step:
            (folder / "children").write_text(Path(f"/proc/self/task/{os.getpid()}/children").read_text())
            os.kill(os.getpid(), signal.SIGKILL)
        os.fsync(fd)
        if count == WRITES == step - 1:
            os.kill(os.getpid(), signal.SIGKILL)

    return sync


async def main(folder: Path, step: int) -> None:
    settings = ServerSettings(listen=f"unix:{folder}/tools.sock")
    config = Config(server=settings, config_dir=folder, data_dir=folder)
    async with tool_server(config, Sandbox("process"), Catalogue(folder / "tools"), sync=killing(folder, step)):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
