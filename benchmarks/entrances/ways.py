"""The ways to be measured: each entrance of the suite in its forms, and peers, all in front of one provider."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks import postgresql
from benchmarks.entrances.gateway import GATEWAY, starting_gateway
from benchmarks.peers import litellm
from benchmarks.peers.environment import Unavailable, build_go, install, read_version
from benchmarks.processes import RunningSuite, services_of, started, starting_suite

PEERS = Path(litellm.__file__).parent
FRAMEWORKS = PEERS / "frameworks.txt"
PROVIDER = "benchmarks.entrances.provider"

SHORT, LONG, SILENT, REACT = "paced-20x5ms", "paced-200x30ms", "silent", "react"
"""Models of the provider, and an agent with a tool; each of its three turns is a SHORT one."""

REACT_AGENT = {
    "mode": "REACT",
    "modelConfig": {"providerKey": "sim", "model": SHORT},
    "toolConfig": {"backends": ["city_datetime"]},
    "react": {"systemPrompt": "Answer."},
}


def make_query(key: str) -> dict[str, Any]:
    return {"message": "go", "agentKey": key, "onDisconnect": "cancel"}


def make_chat(key: str) -> dict[str, Any]:
    return {"model": key, "stream": True, "messages": [{"role": "user", "content": "go"}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    name: str
    url: str
    """Target of plain runs, in the form that the reader expects."""

    pids: dict[str, int]
    """All processes of the way, except the provider, the reader and the database."""

    react_url: str = ""
    """Target of runs with a tool; empty if the way has none."""

    react_key: str = REACT
    """Agent key of runs with a tool, or the model's name for a peer."""

    make_body: Callable[[str], dict[str, Any]] = make_chat
    is_suite: bool = True
    database: postgresql.Server | None = None

    def list_pids(self) -> dict[str, int]:
        """Return all current processes; a database has one per connection."""
        found = self.database.list_processes() if self.database else []
        restarted = services_of(self.pids["up"]) if self.is_suite else {}
        return self.pids | restarted | {f"PostgreSQL {number}": pid for number, pid in enumerate(found)}


@dataclass(slots=True)
class Ways:
    base_url: str
    """Base URL of the provider."""

    ways: list[Way] = field(default_factory=list[Way])
    missing: list[str] = field(default_factory=list[str])
    """Notes about ways that are not available."""


@asynccontextmanager
async def opening_ways(folder: Path, report: Callable[[str], None]) -> AsyncGenerator[Ways]:
    """Start all ways for the whole block; the ways not being measured are idle."""
    async with AsyncExitStack() as stack:
        _, line = await stack.enter_async_context(started("-m", PROVIDER))
        ways = Ways(line.strip())
        await _open_suites(stack, folder, ways)
        report("suites are ready")
        await _open_frameworks(stack, ways)
        await _open_bifrost(stack, ways)
        await _open_litellm(stack, folder, ways)
        report("peers are ready")
        yield ways


async def _open_suites(stack: AsyncExitStack, folder: Path, ways: Ways) -> None:
    async def open_suite(name: str, form: str, **environment: str) -> RunningSuite:
        models, agents = [SHORT, LONG, SILENT], {REACT: REACT_AGENT}
        (folder / name).mkdir()
        starting = starting_suite(
            folder / name, ways.base_url, models, agents=agents, form=form, environment=environment
        )
        return await stack.enter_async_context(starting)

    one = await open_suite("one", "--one-process")
    ways.ways += [_over_grpc("gRPC", one), _over_sse("SSE", one)]
    chat = f"{one.http}/v1/chat/completions"
    ways.ways.append(Way(name="OpenAI adapter", url=chat, react_url=chat, pids=one.pids))
    if GATEWAY.exists():
        pid, url = await stack.enter_async_context(starting_gateway(_find_peers(one)))
        ways.ways.append(_over_sse("Go gateway", replace(one, http=url, pids=one.pids | {"Go gateway": pid})))
    else:
        ways.missing.append(
            "The Go gateway is left out: build/gateway is missing (`make build/gateway`, which needs Go)."
        )
    split = await open_suite("split", "--split")
    ways.ways += [_over_grpc("gRPC, split", split), _over_sse("SSE, split", split)]
    if postgresql.programs() is None:
        ways.missing.append("PostgreSQL is left out: it is not on this machine.")
        return
    server = stack.enter_context(postgresql.running())
    stored = await open_suite("postgresql", "--one-process", HEADRACE_DATABASE_URL=server.new_database())
    ways.ways.append(replace(_over_grpc("gRPC, PostgreSQL", stored), database=server))


def _over_grpc(name: str, suite: RunningSuite) -> Way:
    return Way(name=name, url=suite.grpc, react_url=suite.grpc, pids=suite.pids)


def _over_sse(name: str, suite: RunningSuite) -> Way:
    url = f"{suite.http}/api/query"
    return Way(name=name, url=url, react_url=url, pids=suite.pids, make_body=make_query)


def _find_peers(suite: RunningSuite) -> dict[str, str]:
    """Return the addresses, by service, that a facade next to the suite needs."""
    addresses = {"ORCHESTRATOR": suite.grpc}
    for name, pid in (("MEMORY", suite.pids["suite"]), ("TOOLS", suite.pids["tools"])):
        settings = Path(f"/proc/{pid}/environ").read_text()
        match = re.search(rf"HEADRACE_{name}_LISTEN=([^,\0]+)", settings)
        assert match is not None, "headrace up sets it"
        addresses[name] = match[1]
    return addresses


async def _open_frameworks(stack: AsyncExitStack, ways: Ways) -> None:
    try:
        python = str(await install(FRAMEWORKS, read_version(FRAMEWORKS, "langgraph")) / "python")
    except Unavailable as error:
        ways.missing.append(f"FastAPI and LangGraph are left out: {error}.")
        return
    for name, program, upstream, plain in (
        ("FastAPI + httpx, no log", "by_hand.py", f"{ways.base_url}/chat/completions", "relay"),
        ("LangGraph, no log", "langgraph_server.py", ways.base_url, "plain"),
    ):
        starting = started("-W", "ignore", str(PEERS / "programs" / program), upstream, python=python)
        pid, line = await stack.enter_async_context(starting)
        url = line.strip()
        ways.ways.append(
            Way(
                name=name,
                url=f"{url}/{plain}",
                react_url=f"{url}/agent",
                react_key=SHORT,
                pids={name: pid},
                is_suite=False,
            )
        )


async def _open_bifrost(stack: AsyncExitStack, ways: Ways) -> None:
    try:
        program = await build_go(PEERS / "bifrost")
    except Unavailable as error:
        ways.missing.append(f"Bifrost's core is left out: {error}.")
        return
    pid, line = await stack.enter_async_context(started(ways.base_url, python=str(program)))
    ways.ways.append(Way(name="Bifrost core, no log", url=f"{line.strip()}/", pids={"Bifrost": pid}, is_suite=False))


async def _open_litellm(stack: AsyncExitStack, folder: Path, ways: Ways) -> None:
    try:
        program = await litellm.installed()
        url, pid = await stack.enter_async_context(litellm.litellm(program, folder, ways.base_url))
    except Unavailable as error:
        ways.missing.append(f"LiteLLM is left out: {error}.")
        return
    ways.ways.append(Way(name="LiteLLM", url=url, pids={"LiteLLM": pid}, is_suite=False))
