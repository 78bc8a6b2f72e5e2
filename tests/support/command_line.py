"""The headrace command as a separate process."""

import asyncio
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from headrace.cli import COMMANDS
from headrace.v1 import agent_pb2
from tests.support.command_fork import become_program
from tests.support.facade.scripted import RUN, delta

CANCELLED = delta(9, run_cancel=agent_pb2.RunCancel(run_id=RUN))

GIVEN_UP_S = 600.0
"""Says nothing about how long anything takes: on a busy machine a suite is slow, and says so itself after a minute."""

PROCESSES = multiprocessing.get_context("forkserver")
"""One process has imported all commands, and is forked for each run of one: to start Python takes ten times as long."""

OF_MEMORY = ("services.memory.engines", *(f"services.memory.admin_cli.{name}" for name in ("encryption", "verify")))
PROCESSES.set_forkserver_preload([become_program.__module__, *COMMANDS.values(), *OF_MEMORY])


async def start(*arguments: str, url: str = "", **settings: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headrace.cli", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=make_environment(url, settings),
    )


async def run(*arguments: str, url: str = "", given: bytes = b"", **settings: str) -> tuple[int | None, bytes, bytes]:
    """Run a command to its end; return exit code, stdout and stderr. `up` has child processes and is not forked."""
    if arguments[0] == "up":
        process = await start(*arguments, url=url, **settings)
        async with asyncio.timeout(GIVEN_UP_S):
            output, complaints = await process.communicate(given)
        return process.returncode, output, complaints
    return await fork_program("headrace.cli", *arguments, env=make_environment(url, settings), given=given)


async def fork_program(
    module: str, *arguments: str, env: Mapping[str, str], given: bytes = b""
) -> tuple[int | None, bytes, bytes]:
    """Run `python -m module` with exactly this environment; return exit code, stdout and stderr."""
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("input", "output", "complaints")]
        for stream in streams:
            stream.write_bytes(given if stream.name == "input" else b"")
        # Plain strings: what belongs to a class brings its module, and the services that this imports, into the fork.
        plain = {name: str(value) for name, value in env.items()}
        settled = (module, [*map(str, arguments)], plain, Path.cwd(), streams)
        fork = PROCESSES.Process(target=become_program, args=settled, daemon=True)
        fork.start()
        try:
            async with asyncio.timeout(GIVEN_UP_S):
                await asyncio.to_thread(fork.join)
        finally:
            fork.kill()
            fork.join()
        code = fork.exitcode
        fork.close()
        return code, streams[1].read_bytes(), streams[2].read_bytes()


def make_environment(url: str, settings: dict[str, str]) -> dict[str, str]:
    return {**os.environ, **settings} | ({"HEADRACE_URL": url} if url else {})
