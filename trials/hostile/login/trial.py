"""Runs each attack against a suite in separate processes, while another tenant only lists the agents."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from benchmarks.cpu import rss_mb
from headrace.client import Client
from headrace.testing import Suite, running_suite
from tests.support.issuing import keys_file
from trials.hostile.login.attacks import ATTACKS, Place, follow

WAIT_S_MAX = 0.5
"""Maximum wait for another tenant's trivial call, on two cores."""

RSS_MB_MAX = 300

KEYS = {
    "key-of-ada": "acme/ada staff ask,answer",
    "key-of-bob": "acme/bob staff ask,answer",
    "key-of-admin": "acme/olga staff ask,admin",
    "key-of-eve": "globex/eve",
}
MODEL = {"providerKey": "simulator", "model": "sim-1"}
AGENTS = {
    "plain": {"mode": "ONESHOT", "modelConfig": MODEL, "plain": {"systemPrompt": "Answer."}},
    "filler": {"mode": "ONESHOT", "modelConfig": MODEL, "plain": {"systemPrompt": "{{query}}" * 400}},
    "worker": {
        "mode": "REACT",
        "modelConfig": MODEL,
        "toolConfig": {"backends": ["city_datetime"]},
        "react": {"systemPrompt": "Work."},
    },
}
PROVIDERS = {
    "providers": [
        {
            "key": "simulator",
            "protocol": "openai",
            "baseUrl": "env:SIMULATOR_URL",
            "models": [{"name": "sim-1", "contextWindow": 8_000_000, "maxOutput": 8192, "capabilities": ["tools"]}],
        }
    ]
}

FORMAT = "{:26} {:>12} {:>9}  {}"


async def measure_logins(folder: Path, named: Sequence[str]) -> list[str]:
    """Print a row for each attack; return those that cost others too much or succeeded."""
    failed: list[str] = []
    print(FORMAT.format("with a login", "longest wait", "RSS MB", "got"), flush=True)
    async with opening(folder) as place:
        for name, attack in ATTACKS.items():
            if named and name not in named:
                continue
            place.say("Well.")
            before_mb, waits_s = measure_rss_mb(), list[float]()
            watching = asyncio.create_task(_collect(place.eve, waits_s))
            got = await attack(place)
            watching.cancel()
            grown_mb = measure_rss_mb() - before_mb
            print(FORMAT.format(name, f"{max(waits_s) * 1000:.0f} ms", f"{grown_mb:.0f}", got or "nothing"), flush=True)
            if got or max(waits_s) > WAIT_S_MAX or grown_mb > RSS_MB_MAX:
                failed.append(name)
    return failed


async def _collect(client: Client, waits_s: list[float]) -> None:
    async for wait_s in follow(client):
        waits_s.append(wait_s)


@asynccontextmanager
async def opening(folder: Path) -> AsyncGenerator[Place]:
    config = folder / "config"
    (config / "agents").mkdir(parents=True)
    for key, agent in AGENTS.items():
        (config / "agents" / f"{key}.json").write_text(json.dumps(agent))
    (config / "providers.json").write_text(json.dumps(PROVIDERS))
    os.environ |= {"HEADRACE_AUTH": "api_key", "HEADRACE_AUTH_API_KEYS_FILE": str(keys_file(folder, **KEYS))}
    with running_suite(config, folder) as suite:
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(_connect(suite, key)) for key in KEYS]
            ada, bob, admin, eve = clients
            yield Place(suite, ada, bob, eve, admin)


def _connect(suite: Suite, key: str) -> Client:
    return Client(suite.grpc, memory_address=suite.memory, token=key)


def measure_rss_mb() -> float:
    """Return the memory of all descendants of this process, without the simulated provider."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(_read_rss_mb(pid) for pid in ours - {os.getpid()})


def _read_rss_mb(pid: int) -> float:
    try:
        is_simulator = b"services.simulator" in Path(f"/proc/{pid}/cmdline").read_bytes()
        return 0.0 if is_simulator else rss_mb(pid)
    except OSError:
        return 0.0
