"""`python -m tests.memory.audit.write_killed FOLDER` appends to an audit log until it is killed, and prints a line for
each stored one.
"""

import asyncio
import sys
from pathlib import Path

from tests.support.memory.audit import add_audit_lines
from tests.support.memory.serving import memory_over


async def main(folder: Path) -> None:
    async with memory_over(folder) as memory:
        while True:
            await add_audit_lines(memory, 1)
            sys.stdout.write("stored\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
