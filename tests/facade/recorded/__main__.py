"""Recorded runs on all adapters: `python -m tests.facade.recorded COMMAND`.

write FOLDER   what each adapter gives out of each run, a file each; compare two commits with `diff -r`
update         the digests that the test compares, where what an adapter gives out is meant to change
record         the runs themselves, from the examples' agents and from conversations that end oddly
"""

import asyncio
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import aiohttp
import structlog

from docs.generate.conversations import hold_conversations
from services.runtime.process.transport import VARIABLE
from tests.facade.recorded.readings import list_runs, read_runs, save_digests
from tests.facade.recorded.real_runs import save_runs
from tests.golden.__main__ import EXAMPLES, RUNS, read_run
from tests.support.jumping_loop import JumpingLoop, install_clock
from tests.support.suite import up


def read_all() -> dict[str, dict[str, bytes]]:
    install_clock()
    os.environ[VARIABLE] = "local"
    with asyncio.Runner(loop_factory=JumpingLoop) as runner, tempfile.TemporaryDirectory() as folder:
        return runner.run(read_runs(Path(folder), list_runs()))


async def record_examples() -> dict[str, list[dict[str, Any]]]:
    runs: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as data_dir:
        options = ("--simulate", "--simulate-port", "0", "--config-dir", str(EXAMPLES), "--data-dir", data_dir)
        async with up(*options) as suite, aiohttp.ClientSession(suite.url) as http:
            for name, (agent, message) in RUNS.items():
                runs[f"example-{name}"] = await read_run(http, agent, message, is_cancelled=name == "cancelled")
    return runs


def main(command: str = "", folder: str = "") -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    match command:
        case "write" if folder:
            for run, by_adapter in read_all().items():
                (place := Path(folder) / run).mkdir(parents=True, exist_ok=True)
                for adapter, reading in by_adapter.items():
                    (place / f"{adapter}.txt").write_bytes(reading)
        case "update":
            save_digests(read_all())
        case "record":
            examples = asyncio.run(record_examples())
            save_runs(examples | hold_conversations())
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
