"""The measured processes: the simulator, and the suite as run by `headrace up`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STARTED = re.compile(r"http://\S+")
GRPC = re.compile(r"grpc (\S+)")
START_TIMEOUT_S = 300.0
"""Long, because a first start with 100,000 chats reads them all."""


@asynccontextmanager
async def simulating(folder: Path, script: list[Any] | None = None) -> AsyncGenerator[tuple[str, int]]:
    """Start the simulator; yield its base URL and process id.

    It follows `script`; if no rule matches, it uses its built-in behaviour.
    """
    (folder / "script.json").write_text(json.dumps(script or []))
    flags = ("--port", "0", "--script", str(folder / "script.json"))
    async with started("-m", "services.simulator", *flags) as (pid, line):
        yield _found(STARTED, line), pid


@dataclass(frozen=True, slots=True)
class RunningSuite:
    grpc: str
    """Address of the orchestrator."""

    http: str
    """URL of the embedded facade."""

    pids: dict[str, int]
    """Process ids by service, including that of `up`."""


@asynccontextmanager
async def starting_suite(
    folder: Path,
    base_url: str,
    models: list[str],
    *,
    agents: Mapping[str, Any] | None = None,
    form: str,
    environment: Mapping[str, str],
) -> AsyncGenerator[RunningSuite]:
    """Start `headrace up` with `form`, with an agent for each of `models`, keyed by the model's name.

    `agents` are further agents, by key. An existing configuration in `folder` is kept.
    """
    if not (folder / "config").exists():
        configure(folder / "config", base_url, models)
    for key, agent in (agents or {}).items():
        (folder / "config" / "agents" / f"{key}.json").write_text(json.dumps(agent))
    folders = ("--config-dir", str(folder / "config"), "--data-dir", str(folder / "data"))
    command = ("-m", "headrace.cli", "up", form, *folders, "--port", "0", "--grpc-port", "0")
    async with started(*command, **environment) as (up, line):
        yield RunningSuite(GRPC.findall(line)[0], _found(STARTED, line), services_of(up) | {"up": up})


def configure(folder: Path, base_url: str, models: list[str]) -> None:
    """Write a configuration with an agent for each of `models`, using the provider at `base_url`."""
    (folder / "agents").mkdir(parents=True)
    for model in models:
        agent = {
            "mode": "ONESHOT",
            "modelConfig": {"providerKey": "sim", "model": model},
            "budget": {"timeoutMs": 600_000, "modelTimeoutMs": 600_000},
            "plain": {"systemPrompt": "Answer."},
        }
        (folder / "agents" / f"{model}.json").write_text(json.dumps(agent))
    timeouts = {"firstDeltaMs": 600_000, "idleMs": 600_000}
    entries = [{"name": model} for model in models]
    provider: dict[str, Any] = {
        "key": "sim",
        "protocol": "openai",
        "baseUrl": base_url,
        "timeouts": timeouts,
        "models": entries,
    }
    (folder / "providers.json").write_text(json.dumps({"providers": [provider]}))


@asynccontextmanager
async def started(*arguments: str, python: str = sys.executable, **environment: str) -> AsyncGenerator[tuple[int, str]]:
    """Run `python` with `arguments`; yield its process id and the output line with its address.

    Raises:
        RuntimeError: It ended without such a line.
    """
    process = await asyncio.create_subprocess_exec(
        python, *arguments, env=os.environ | environment, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            while line := (await process.stdout.readline()).decode():
                if STARTED.search(line):
                    break
        if not line:
            raise RuntimeError(f"{' '.join(arguments)} did not start")
        yield process.pid, line
    finally:
        await _stop(process)


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    await process.wait()


def services_of(up_pid: int) -> dict[str, int]:
    """Return the process ids of the services started by `headrace up`, by name; further replicas get a number
    suffix.
    """
    children = Path(f"/proc/{up_pid}/task/{up_pid}/children").read_text().split()
    commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0") for pid in children}
    found: dict[str, int] = {}
    for pid, command in commands.items():
        if "-m" in command:
            name = command[command.index("-m") + 1].removeprefix("services.")
            others = sum(other.partition(" ")[0] == name for other in found)
            found[f"{name} {others + 1}" if others else name] = pid
    return found


def _found(pattern: re.Pattern[str], line: str) -> str:
    match = pattern.search(line)
    assert match is not None, f"no address in {line!r}"
    return match[0]
