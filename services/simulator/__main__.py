"""`python -m services.simulator`: serves until a signal arrives."""

from __future__ import annotations

if __name__ == "__main__":
    from services.runtime.process.early_stop import prepare_process

    prepare_process()  # before the slow imports below

import argparse
import asyncio
import sys
from pathlib import Path

import uvloop

from services.runtime.process.early_stop import end_imports, list_stops
from services.simulator.script import BadScript, read_script
from services.simulator.server import simulator


def main() -> None:
    end_imports()
    parser = argparse.ArgumentParser(prog="simulator", description="A model provider without a model.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=7005, help="0: any free port; the first line printed tells")
    parser.add_argument("--script", type=Path, help="JSON file with rules; without it, built-in answers")
    parser.add_argument("--pace-ms", type=float, default=15.0, help="time before each delta")
    arguments = parser.parse_args()
    try:
        rules = read_script(arguments.script) if arguments.script else ()
    except BadScript as error:
        parser.error(str(error))
    uvloop.run(_serve(rules, arguments))


async def _serve(rules: object, arguments: argparse.Namespace) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in list_stops():
        loop.add_signal_handler(number, stop.set)
    serving = simulator(rules, host=arguments.host, port=arguments.port, pace_ms=arguments.pace_ms)
    async with serving as sim:
        sys.stdout.write(f"{sim.base_url}\n")
        sys.stdout.flush()
        await stop.wait()


if __name__ == "__main__":
    main()
