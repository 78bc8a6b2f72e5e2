"""Let third-party gRPC clients read streams of our server for minutes: none may break.

Four clients with their default options, over one connection each. A broken stream fails the trial; the time and
the status of the break are printed.
"""

import argparse
import asyncio
import os
import shutil
import sys
from collections.abc import Sequence

from trials.grpc_load.clients import CLIENTS
from trials.grpc_load.runs import Load, Result, run_load

LOADS = (Load(1, 400), Load(20, 33), Load(40, 33))
SECONDS = 120.0

NIGHTLY = ["--transport", "h2"]
"""Takes half an hour; with grpcio it takes as long again."""

PROGRAMS = ("go", "npm", "node")
"""Programs needed to build and run the clients."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m trials grpc-load", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each load (%(default)s)")
    parser.add_argument("--transport", choices=("h2", "grpcio"), default="h2", help="of the server (%(default)s)")
    parser.add_argument("--client", choices=CLIENTS, action="append", help="one of them; all if none is given")
    given = parser.parse_args(arguments)
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        print(f"NOT TRIED: not here: {', '.join(missing)}", flush=True)
        return os.EX_UNAVAILABLE
    return asyncio.run(try_loads(given.client or list(CLIENTS), given.seconds, given.transport))


async def try_loads(names: Sequence[str], seconds: float, transport: str) -> int:
    """Print a row for each load; return 1 if one breaks."""
    failed = 0
    print(f"{seconds:.0f} s each, on {transport}\n{'client':<9}{'load':<13}{'whole streams':<15}result", flush=True)
    for name in names:
        for load in LOADS:
            result = await run_load(CLIENTS[name], load, seconds, transport)
            failed += not result.is_whole
            verdict = f"holds, {result.seconds:.1f} s" if result.is_whole else "BREAKS"
            whole = f"{len(result.ends) - len(result.breaks)} of {load.streams}"
            print(f"{name:<9}{load!s:<13}{whole:<15}{'; '.join([verdict, *describe_breaks(result)])}", flush=True)
    print(f"FAILED: {failed} loads break" if failed else "all loads hold")
    return min(failed, 1)


def describe_breaks(result: Result) -> list[str]:
    lines = [f"the server: {why}" for why in result.refusals]
    if result.breaks:
        first = result.breaks[0]
        deltas = "" if first.messages is None else f", {first.messages} of {result.deltas} deltas"
        lines.append(f"after {first.seconds:.1f} s{deltas}: {first.code} {first.details}")
    if result.missing:
        lines.append(f"nothing is known of {result.missing} streams")
    return [*lines, result.complaint] if result.complaint else lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
