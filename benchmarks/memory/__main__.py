"""Measures encryption, recall and recap; encryption with files and with a local PostgreSQL, which syncs as it does by
default.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import uvloop
from rich.console import Console

from benchmarks.memory.encrypting import encrypting
from benchmarks.memory.recall import recall
from benchmarks.memory.recap import recap
from benchmarks.postgresql import Server, programs, running
from services.runtime.process import logs

PARTS = {"recall": recall, "recap": recap}


async def main() -> None:
    console = Console(width=120)
    with tempfile.TemporaryDirectory(prefix="bench-") as name, _postgresql(console) as server:
        folder = Path(name)
        console.print(await encrypting(folder / "encrypting", server))
        for part, measured in PARTS.items():
            (folder / part).mkdir()
            console.print(await measured(folder / part))


@contextmanager
def _postgresql(console: Console) -> Generator[Server | None]:
    if programs() is None:
        console.print("NOTICE: PostgreSQL is not installed on this machine: it is not measured")
        yield None
        return
    with running() as server:
        yield server


if __name__ == "__main__":
    logs.configure_logging("WARNING", "bench")
    uvloop.run(main())
