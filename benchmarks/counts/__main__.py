"""Counts what a short run, a delta, a REACT run of three steps and an attach cost: `python -m benchmarks.counts`

With `--write` the figures become the budgets that the check holds, and the table of docs/performance.md.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console

from benchmarks.counts import budgets
from benchmarks.counts.budgets import Measured
from benchmarks.counts.counting import Counts, opening_by_hand, opening_suite
from benchmarks.peers.environment import Unavailable


async def count_all() -> Measured:
    """Return the counts of all entrances and of the hand-written server, if it is to be had."""
    measured: Measured = {}
    for opening in (opening_suite, opening_by_hand):
        with tempfile.TemporaryDirectory(prefix="counts-") as folder:
            try:
                measured |= await _count_process(opening(Path(folder)))
            except Unavailable as error:
                print(f"{opening.__name__}: {error}")
    return measured


async def _count_process(opening: AbstractAsyncContextManager[Any]) -> Measured:
    measured: Measured = {}
    async with opening as (process, entrances):
        for entrance, asks in entrances.items():
            counts: dict[str, Counts] = {}
            for what, ask in asks.items():
                counts[what] = await process.count(ask)
                if (syscalls := await process.count_syscalls(ask)) is not None:
                    counts[what].figures["system calls"] = syscalls
            counts["delta"] = counts.pop("long run").per_delta(counts["short run"])
            measured |= {(what, entrance): found for what, found in counts.items()}
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.counts", description=__doc__)
    parser.add_argument("--write", action="store_true")
    is_written = parser.parse_args().write
    measured = uvloop.run(count_all())
    Console(width=160).print(budgets.show(measured).printed())
    if is_written:
        budgets.write(measured)


if __name__ == "__main__":
    main()
