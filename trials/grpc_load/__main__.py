"""Let others' clients of gRPC read streams of a server of ours for minutes: none may break.

Four clients with their default options, over one connection each. A stream that breaks fails the trial, which says
when, and with which status.
"""

from __future__ import annotations

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
"""Thirteen minutes; on grpcio, where nothing is expected to break, it takes twice that."""

PROGRAMS = ("go", "npm", "node")
"""What its clients are made with and run on."""

ENOUGH_S = 30.0
"""Time in which a load of EXPECTED breaks; a shorter one that holds proves nothing."""

TOO_MANY_PINGS = "too many control frames"
"""Why our server refuses such a connection."""

PINGS = (
    "owned by 'Other people's programs', kind D: grpc-go's bandwidth estimator pings with the DATA that follows each"
    " answer, and our server allows 100 control frames a second"
)
EXPECTED = {(client, load): PINGS for client in ("grpc-go", "ghz") for load in LOADS}
"""Loads that break on h2 by TOO_MANY_PINGS, and who mends them. One that holds fails the trial: its row is to go."""


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
    """Print a row for each load; return 1 if one is not as expected."""
    failed = 0
    print(f"{seconds:.0f} s each, on {transport}\n{'client':<9}{'load':<13}{'whole streams':<15}result", flush=True)
    for name in names:
        for load in LOADS:
            result = await run_load(CLIENTS[name], load, seconds, transport)
            reason = EXPECTED.get((name, load), "") if transport == "h2" else ""
            verdict, is_right = judge_result(result, reason, seconds)
            failed += not is_right
            whole = f"{len(result.ends) - len(result.breaks)} of {load.streams}"
            print(f"{name:<9}{load!s:<13}{whole:<15}{'; '.join([verdict, *describe_breaks(result)])}", flush=True)
    print(f"FAILED: {failed} loads are not as expected" if failed else "all loads are as expected")
    return min(failed, 1)


def judge_result(result: Result, reason: str, seconds: float) -> tuple[str, bool]:
    """Return what a load did, and whether that is as expected; `reason` says why it is to break."""
    if result.is_whole:
        if reason and seconds >= ENOUGH_S:
            return f"HOLDS, and was expected to break: {reason}", False
        return f"holds, {result.seconds:.1f} s", True
    if reason and result.refusals == [TOO_MANY_PINGS] and result.breaks:
        return "breaks, as expected", True
    return "BREAKS", False


def describe_breaks(result: Result) -> list[str]:
    said = [f"the server: {why}" for why in result.refusals]
    if result.breaks:
        first = result.breaks[0]
        deltas = "" if first.messages is None else f", {first.messages} of {result.deltas} deltas"
        said.append(f"after {first.seconds:.1f} s{deltas}: {first.code} {first.details}")
    if result.missing:
        said.append(f"nothing is known of {result.missing} streams")
    return [*said, result.complaint] if result.complaint else said


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
