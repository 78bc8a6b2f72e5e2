"""Prints what memory costs: appends, views as a chat grows, compaction, recap, counting."""

from __future__ import annotations

import tempfile
from pathlib import Path

import uvloop
from rich.console import Console

from benchmarks import tokens
from benchmarks.memory.appending import appending
from benchmarks.memory.compacting import compacting
from benchmarks.memory.growing import growing
from benchmarks.memory.recap import recap
from services.runtime import logs

PARTS = {"appending": appending, "growing": growing, "compacting": compacting, "recap": recap}


async def main() -> None:
    console = Console(width=120)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        for part, measured in PARTS.items():
            folder = Path(name) / part
            folder.mkdir()
            console.print(await measured(folder))


if __name__ == "__main__":
    logs.configure("WARNING", "bench")
    uvloop.run(main())
    tokens.main()
