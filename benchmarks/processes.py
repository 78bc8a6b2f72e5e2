"""The processes under measurement: the simulator, the relay, and the suite as `headrace up` runs it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STARTED = re.compile(r"http://\S+")
GRPC = re.compile(r"grpc (\S+)")
START_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Stack:
    """Where everything listens, and the process ids by service."""

    upstream: str
    """The simulator's chat completions."""
    relay: str
    facade: str
    grpc: str
    pids: dict[str, int]


@asynccontextmanager
async def stack(
    folder: Path, models: list[str], *, agents: Mapping[str, Any] | None = None, script: list[Any] | None = None
) -> AsyncGenerator[Stack]:
    """All of them, with an agent for each of `models` whose key is the model's name, and further `agents` by key.

    The simulator follows `script`, and where no rule of it fits its built-in behaviour.
    """
    async with AsyncExitStack() as processes:
        (folder / "script.json").write_text(json.dumps(script or []))
        simulated = ("-m", "services.simulator", "--port", "0", "--script", str(folder / "script.json"))
        simulator, line = await _start(processes, *simulated)
        base_url = _found(STARTED, line)
        upstream = f"{base_url}/chat/completions"
        relay, line = await _start(processes, "-m", "benchmarks.relay", upstream)
        relay_url = _found(STARTED, line)
        _configure(folder / "config", base_url, models)
        for key, agent in (agents or {}).items():
            (folder / "config" / "agents" / f"{key}.json").write_text(json.dumps(agent))
        flags = ("--port", "0", "--grpc-port", "0", "--data-dir", str(folder / "data"))
        up, line = await _start(processes, "-m", "headrace.cli", "up", "--config-dir", str(folder / "config"), *flags)
        pids = {"simulator": simulator, "relay": relay} | _services(up)
        yield Stack(upstream, relay_url, _found(STARTED, line), GRPC.findall(line)[0], pids)


def _configure(folder: Path, base_url: str, models: list[str]) -> None:
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
    provider = {"key": "sim", "protocol": "openai", "baseUrl": base_url, "timeouts": timeouts, "models": entries}
    (folder / "providers.json").write_text(json.dumps({"providers": [provider]}))


@asynccontextmanager
async def gateway(folder: Path, model: str) -> AsyncGenerator[tuple[str, dict[str, int]]]:
    """The gateway alone before the simulator: its address, and the process ids by service."""
    async with AsyncExitStack() as processes:
        simulator, line = await _start(processes, "-m", "services.simulator", "--port", "0")
        _configure(folder, _found(STARTED, line), [model])
        address = f"unix:{folder}/gateway.sock"
        settings = {"HEADRACE_LLM_GATEWAY_LISTEN": address, "HEADRACE_CONFIG_DIR": str(folder)}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.llm_gateway", env=os.environ | settings, stderr=asyncio.subprocess.DEVNULL
        )
        processes.push_async_callback(_stop, process)
        yield address, {"simulator": simulator, "llm_gateway": process.pid}


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    await process.wait()


async def _start(processes: AsyncExitStack, *arguments: str) -> tuple[int, str]:
    """Start Python with `arguments`; its process id and the line that says where it listens."""
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    processes.push_async_callback(_stop, process)
    assert process.stdout is not None
    async with asyncio.timeout(START_TIMEOUT_S):
        async for line in process.stdout:
            if STARTED.search(text := line.decode()):
                return process.pid, text
    raise RuntimeError(f"{' '.join(arguments)} did not start")


def _services(up_pid: int) -> dict[str, int]:
    children = Path(f"/proc/{up_pid}/task/{up_pid}/children").read_text().split()
    commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0") for pid in children}
    return {
        command[command.index("-m") + 1].removeprefix("services."): pid
        for pid, command in commands.items()
        if "-m" in command
    }


def _found(pattern: re.Pattern[str], line: str) -> str:
    match = pattern.search(line)
    assert match is not None, f"no address in {line!r}"
    return match[0]
