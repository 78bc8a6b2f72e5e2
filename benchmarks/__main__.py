"""What a delta costs: `python -m benchmarks` prints both transports side by side with their peers, in one run.

With `--write docs` the tables and the machine go to docs/performance-transports.md, and a picture beside it.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import uvloop
from rich.console import Console

from benchmarks.capacity import capacity
from benchmarks.document import document
from benchmarks.figures import figures
from benchmarks.machine import machine
from benchmarks.measuring import FLAT_OUT, IDLE, PACED, Load, broken, measure, rounds
from benchmarks.picture import picture
from benchmarks.tables import own_costs, relaying
from benchmarks.ways import running
from benchmarks.weighing import weights
from services.runtime.process.transport import TRANSPORTS

STREAMS = (1, 40, 160, 640)
FLAT_OUT_STREAMS = 40

console = Console(width=170)


async def main(given: argparse.Namespace) -> None:
    loads = [*(Load(count) for count in given.streams), Load(FLAT_OUT_STREAMS, FLAT_OUT)]
    models = sorted({PACED, FLAT_OUT, IDLE})
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        async with running(Path(folder), given.transports, models) as ways:
            weight = await weights(ways)
            for way in ways.ways:
                await measure(ways, way, Load(40), 1.0)
            results = await rounds(ways, loads, given.rounds, given.window_s, console.print)
            rows = figures(results)
            grids = [relaying(rows), await capacity(ways, given.window_s), weight, own_costs(rows)]
    notes = [*ways.missing, *broken(results)]
    for note in notes:
        console.print(f"NOTICE: {note}")
    for grid in grids:
        console.print(grid.printed())
    if given.write:
        page = document(machine(), grids, notes, count=given.rounds, window_s=given.window_s)
        given.write.joinpath("performance-transports.md").write_text(page)
        given.write.joinpath("performance-transports.svg").write_text(picture(rows))


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _numbers(text: str) -> list[int]:
    return [int(word) for word in _words(text)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--window-s", type=float, default=5.0, help="how long deltas are counted")
    parser.add_argument("--streams", type=_numbers, default=STREAMS, help="loads of 33 deltas/s each: 1,40,160,640")
    parser.add_argument("--transports", type=_words, default=TRANSPORTS, help=",".join(TRANSPORTS))
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write performance-transports.md and .svg there")
    uvloop.run(main(parser.parse_args()))
