"""`python -m tests.memory.audit.write_killed FOLDER` appends to an audit log until it is killed, and says so of each
line."""

import asyncio
import sys
from pathlib import Path

from tests.support.memory.audit import make_deeds
from tests.support.memory.serving import memory_over


async def main(folder: Path) -> None:
    async with memory_over(folder) as memory:
        while True:
            await make_deeds(memory, 1)
            sys.stdout.write("stored\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
