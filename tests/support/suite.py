"""The whole suite as its users run it: `headrace up` in a separate process, with a simulator in this one."""

import asyncio
import io
import json
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp

from headrace.sse import SseReader
from services.simulator.script import parse_script
from services.simulator.server import Simulator, simulator
from tests.support.facade.fronts import DEFAULTS, PEERS, gateway
from tests.support.order import Event, check_order

READY = re.compile(r"ready: (?P<url>http://\S+)\s+grpc (?P<grpc>\S+)\s+memory (?P<memory>\S+)")
READY_TIMEOUT_S = 600.0
TEST_TIMEOUT_S = 300.0

FORM = os.environ.get("SUITE_FORM", "--one-process")
"""Option of `headrace up` that says which services share a process."""

COMMAND = (sys.executable, "-m", "headrace.cli")

MODEL = {"providerKey": "sim", "model": "sim-1"}
TOOLS = ["mock_city_weather", "city_datetime", "_bash_", "write_file", "read_file"]


def describe_agent(mode: str, prompt: str = "Answer.", /, model: str = "sim-1", **fields: Any) -> dict[str, Any]:
    part = {"systemPrompt": prompt} | fields.pop("part", {})
    key = "plain" if mode == "ONESHOT" else "react"
    return {"mode": mode, "modelConfig": MODEL | {"model": model}, key: part, **fields}


BACKENDS: dict[str, Any] = {"toolConfig": {"backends": TOOLS}}
AGENTS: dict[str, dict[str, Any]] = {
    "plain": describe_agent("ONESHOT"),
    "once": describe_agent("ONESHOT", **BACKENDS),
    "react": describe_agent("REACT", "Today is {{date}}.", **BACKENDS),
    "parallel": describe_agent("REACT", part={"parallelToolCalls": True}, **BACKENDS),
    "required": describe_agent("REACT", toolPolicy="REQUIRE", **BACKENDS),
    "thrifty": describe_agent("REACT", budget={"maxModelCalls": 1}, **BACKENDS),
    "small": describe_agent("ONESHOT", model="small-1"),
    "seeing": describe_agent("REACT", model="seeing-1", **BACKENDS),
    "remembering": describe_agent("REACT", memory={"facts": "recall"}),
    "hurried": describe_agent("ONESHOT", budget={"timeoutMs": 400}),
}
WINDOWS: dict[str, dict[str, Any]] = {
    "small-1": {"contextWindow": 2400, "maxOutput": 400},
    "seeing-1": {"capabilities": ["tools", "vision", "audio", "files"]},
}

# A model that failed has a breaker, which is not to open for another test: each that fails has its own.
for number in range(6):
    AGENTS[f"fail-{number}"] = describe_agent("ONESHOT", model=f"fail-{number}")


class StreamCutError(AssertionError):
    """A stream ended before its run did."""


@dataclass
class Suite:
    """A running suite. One simulator, whose script a test replaces."""

    url: str
    grpc: str
    memory: str
    config_dir: Path
    data_dir: Path
    simulator: Simulator
    http: aiohttp.ClientSession
    process: asyncio.subprocess.Process

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        """Status and JSON of a POST; bytes are sent as they are."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        async with self.http.post(self.url + path, data=io.BytesIO(data), headers=headers) as response:
            return response.status, await response.json()

    async def until_known(self, *names: str) -> None:
        """Wait until agents and tools whose files were written are in force."""
        async with asyncio.timeout(TEST_TIMEOUT_S):
            while True:
                _, agents = await self.get("/api/agents")
                _, tools = await self.get("/api/tools")
                known = {agent["key"] for agent in agents["data"]} | {tool["name"] for tool in tools["data"]}
                if known.issuperset(names):
                    return
                await asyncio.sleep(0.05)

    async def get(self, path: str, **params: str) -> tuple[int, Any]:
        """Status and JSON of a GET."""
        async with self.http.get(self.url + path, params=params) as response:
            return response.status, await response.json()

    @asynccontextmanager
    async def query(self, message: str, agent: str = "plain", **fields: Any) -> AsyncGenerator[AsyncGenerator[Event]]:
        """The events of a query as they come; leaving the block closes the connection."""
        body = {"message": message, "agentKey": agent} | fields
        async with self.http.post(f"{self.url}/api/query", json=body) as response:
            assert response.status == 200, await response.text()
            yield read_events(response)

    async def ask(self, message: str, agent: str = "plain", **fields: Any) -> list[Event]:
        """A whole run, its order checked."""
        async with self.query(message, agent, **fields) as events:
            received = [event async for event in events]
        check_order(received)
        return received

    async def compact(self, chat_id: str) -> list[Event]:
        """A run that only compacts, its order checked."""
        async with self.http.post(f"{self.url}/api/compact", json={"chatId": chat_id}) as response:
            assert response.status == 200, await response.text()
            received = [event async for event in read_events(response)]
        check_order(received)
        return received

    async def attach(self, run_id: str, last_seq: int = 0) -> list[Event]:
        """What a run's readers get after `last_seq`, to its end."""
        async with self.attached(run_id, last_seq) as events:
            return [event async for event in events]

    async def follow(self, run_id: str) -> list[Event]:
        """What a reader gets who attaches again, after the last event it has, whenever its stream is cut."""
        received: list[Event] = []
        while True:
            try:
                async with self.attached(run_id, received[-1]["seq"] if received else 0) as events:
                    async for event in events:
                        received.append(event)
                return received
            except StreamCutError:
                await asyncio.sleep(0.1)

    @asynccontextmanager
    async def attached(self, run_id: str, last_seq: int = 0) -> AsyncGenerator[AsyncGenerator[Event]]:
        """The events of a run after `last_seq`, as they come."""
        params = {"runId": run_id, "lastSeq": str(last_seq)}
        async with self.http.get(f"{self.url}/api/attach", params=params) as response:
            assert response.status == 200, await response.text()
            yield read_events(response)

    def play(self, *rules: dict[str, Any]) -> None:
        """Let the provider play these rules instead of its built-in answers."""
        self.simulator.rules = parse_script(list(rules))

    def requests(self) -> list[Any]:
        """Bodies of the requests that the provider got, oldest first."""
        return [request.body for request in self.simulator.requests]

    def services(self) -> dict[str, int]:
        """Process ids of the services."""
        return find_services(self.process.pid)

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal to `headrace up`, wait for its end, give its exit code."""
        self.process.send_signal(number)
        async with asyncio.timeout(300):
            return await self.process.wait()


@dataclass(frozen=True)
class Running:
    """A `headrace up` that is ready."""

    url: str
    grpc: str
    memory: str
    process: asyncio.subprocess.Process


@asynccontextmanager
async def running(
    config_dir: Path, data_dir: Path, sim: Simulator, *, command: Sequence[str] = COMMAND, form: str = FORM, **env: str
) -> AsyncGenerator[Suite]:
    """`headrace up` over these folders. A configuration of AGENTS is written when there is none."""
    write_config(config_dir, sim)
    timeout = aiohttp.ClientTimeout(total=TEST_TIMEOUT_S)
    async with (
        up("--config-dir", str(config_dir), "--data-dir", str(data_dir), command=command, form=form, **env) as process,
        aiohttp.ClientSession(timeout=timeout) as http,
    ):
        yield Suite(process.url, process.grpc, process.memory, config_dir, data_dir, sim, http, process.process)


@asynccontextmanager
async def up(*options: str, command: Sequence[str] = COMMAND, form: str = FORM, **env: str) -> AsyncGenerator[Running]:
    """`headrace up` on free ports; `env` is added to our own environment."""
    process = await asyncio.create_subprocess_exec(
        *(*command, "up", form, "--port", "0", "--grpc-port", "0", *options),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | env,
    )
    try:
        url, grpc, memory = await _ready(process)
        yield Running(url, grpc, memory, process)
    finally:
        if process.returncode is None:
            process.terminate()
            async with asyncio.timeout(300):
                await process.wait()


@asynccontextmanager
async def up_simulated(*options: str, **env: str) -> AsyncGenerator[Running]:
    """As `headrace up --simulate`, with a simulator in this process that sends a delta each millisecond."""
    async with simulator(pace_ms=1) as sim:
        host = sim.base_url.removeprefix("http://").removesuffix("/v1")
        web = {"HEADRACE_TOOLS_SEARCH_URL": f"http://{host}/search", "HEADRACE_TOOLS_FETCH_ALLOW": host}
        async with up(*options, SIMULATOR_URL=sim.base_url, **web, **env) as suite:
            yield suite


@asynccontextmanager
async def fresh_suite(folder: Path, *, form: str = FORM, **env: str) -> AsyncGenerator[Suite]:
    """Run a separate suite, for tests that break it."""
    async with simulator() as sim, running(folder / "config", folder / "data", sim, form=form, **env) as suite:
        yield suite


def write_config(config_dir: Path, sim: Simulator) -> None:
    agents = config_dir / "agents"
    if not agents.exists():
        agents.mkdir(parents=True)
        for key, agent in AGENTS.items():
            (agents / f"{key}.json").write_text(json.dumps(agent))
    names = {agent["modelConfig"]["model"] for agent in AGENTS.values()} | {"idle", "bench"}
    models: list[dict[str, Any]] = [{"name": name} | WINDOWS.get(name, {}) for name in sorted(names)]
    models.append({"name": "embed-1", "capabilities": ["embeddings"], "price": {"inputPerMTok": 0.02}})
    provider: dict[str, Any] = {"key": "sim", "protocol": "openai", "baseUrl": sim.base_url, "models": models}
    provider["retry"] = {"maxAttempts": 1}
    (config_dir / "providers.json").write_text(json.dumps({"providers": [provider]}))


async def _ready(process: asyncio.subprocess.Process) -> tuple[str, str, str]:
    assert process.stdout is not None
    async with asyncio.timeout(READY_TIMEOUT_S):
        async for line in process.stdout:
            if match := READY.search(line.decode()):
                return match["url"], match["grpc"], match["memory"]
    raise AssertionError("headrace up ended before it was ready")


async def read_events(response: aiohttp.ClientResponse) -> AsyncGenerator[Event]:
    """Yield the events of an SSE response, checking the form of its frames."""
    reader, is_done = SseReader(), False
    async for chunk in response.content.iter_any():
        for frame in reader.feed(chunk):
            assert not is_done, "nothing follows [DONE]"
            if frame.data == b"[DONE]":
                is_done = True
                continue
            event = json.loads(frame.data)
            assert (frame.id, frame.event) == (str(event["seq"]), "message")
            yield event
    if not is_done:
        raise StreamCutError("the stream ended without [DONE]")


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def is_ready(suite: Suite) -> bool:
    with suppress(aiohttp.ClientError):
        async with suite.http.get(f"{suite.url}/readyz?all") as response:
            return response.status == 200
    return False


def find_services(pid: int) -> dict[str, int]:
    """Return the process ids of the services that a `headrace up` has started, by name."""
    found: dict[str, int] = {}
    for child in _children(pid):
        try:
            command = Path(f"/proc/{child}/cmdline").read_bytes().decode().split("\0")
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        if "-m" in command:
            found[command[command.index("-m") + 1].removeprefix("services.")] = child
    return found


async def kill_service(suite: Suite, victim: str) -> None:
    """Kill a service, and wait until a new process has replaced it."""
    killed = suite.services()[victim]
    os.kill(killed, signal.SIGKILL)
    await until_replaced(suite, victim, killed)


async def until_replaced(suite: Suite, victim: str, killed: int) -> None:
    while suite.services().get(victim, killed) == killed or not await is_ready(suite):
        await asyncio.sleep(0.1)


@asynccontextmanager
async def behind_gateway(suite: Suite) -> AsyncGenerator[Suite]:
    """Yield the same suite, reached through a gateway with the addresses of its facade."""
    async with gateway(read_addresses(suite), DEFAULTS, FACADE_ADDRESS=suite.url.removeprefix("http://")) as url:
        yield replace(suite, url=url)


def read_addresses(suite: Suite) -> dict[str, str]:
    """Addresses of the services behind the suite's facade."""
    services = suite.services()
    facade = services.get("facade") or services["suite"]
    pairs = Path(f"/proc/{facade}/environ").read_text().split("\0")
    environment = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    return {name: environment[f"HEADRACE_FACADE_{name.upper()}_ADDRESS"] for name in PEERS}


async def wait_for_exit(services: dict[str, int]) -> None:
    """Wait until all processes have exited: `headrace up` ends its services, however it dies."""
    while any(os.path.exists(f"/proc/{pid}") for pid in services.values()):  # noqa: ASYNC240
        await asyncio.sleep(0.02)
