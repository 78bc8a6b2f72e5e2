"""How long a key is accepted after its revocation: three real orchestrators and memory, in simulated time.

The loop's clock jumps to the next timer, so tests run faster than the times they simulate, and load does not matter.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from contextvars import Context
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import grpc
import pytest

from headrace.errors import CredentialEnded
from headrace.streams import reading, rpc_errors
from headrace.v1 import (
    agent_pb2,
    agent_pb2_grpc,
    keys_pb2,
    keys_pb2_grpc,
    llm_pb2_grpc,
    memory_pb2,
    memory_pb2_grpc,
    operator_pb2,
    operator_pb2_grpc,
)
from services.memory.__main__ import (
    build_audit_service,
    build_data_service,
    build_key_service,
    build_schedule_service,
    build_service,
    build_webhook_service,
    following_own_keys,
)
from services.memory.config import Config as MemoryConfig
from services.memory.data.erasures import Refusals
from services.memory.keys.rpcs import KeyService
from services.memory.keys.store import KeyStore
from services.memory.keys.suspensions import SuspensionStore
from services.memory.storage.files.disk import Disk
from services.memory.storage.files.engine import open_files
from services.orchestrator.config import Config
from services.orchestrator.server import orchestrator
from services.runtime.auth.settings import KEYS_POLL_S_MAX, AuthSettings
from services.runtime.auth.setup import READ_TIMEOUT_S
from services.runtime.clock import CLOCK
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.server import GrpcService, serving_grpc
from tests.support.issuing import key_settings
from tests.support.orchestrator.scripted_llm import ScriptedLlm
from tests.support.orchestrator.steps import content
from tests.support.tenants.suite import MODEL, SCOPES
from tests.support.tiers import check_first
from trials.simulation.world.loop import SimulatedLoop
from trials.simulation.world.processes import SimulatedClock

BOUND_S = 5.0
"""What docs/guides/keys.md promises."""

REPLICAS = ("orchestrator-0", "orchestrator-1", "orchestrator-2")
MEMORY = "memory"
CALL_EVERY_S = 0.05
WATCHED_S = 20.0
SLOW_READ_S = READ_TIMEOUT_S - 0.05
"""Memory's reply comes just before the timeout."""


class SlowKeys(KeyService):
    """Reports changes with a delay, like a busy memory."""

    delay_s: Callable[[], float]

    async def ReadKeyChanges(
        self, request: keys_pb2.ReadKeyChangesRequest, context: Any
    ) -> keys_pb2.ReadKeyChangesResponse:
        # The reply shows the state at the time of the request.
        response = await super().ReadKeyChanges(request, context)
        await asyncio.sleep(self.delay_s())
        return response


@dataclass
class RevocationTimes:
    """Observations of a revoked key, in seconds of the loop's clock."""

    revoked_s: float = 0.0
    accepted_s: dict[str, float] = field(default_factory=dict[str, float])
    """When the last call was accepted, by service."""
    ended_s: dict[str, float] = field(default_factory=dict[str, float])
    """When the open stream ended, by replica."""
    states: dict[str, str] = field(default_factory=dict[str, str])
    """States of the runs started with the key, at the end."""

    @property
    def longest_s(self) -> float:
        return max([*self.accepted_s.values(), *self.ended_s.values()]) - self.revoked_s


def simulate(seed: int, work: Callable[[], Awaitable[RevocationTimes]]) -> RevocationTimes:
    loop = SimulatedLoop(Random(seed))

    async def run() -> RevocationTimes:
        CLOCK.set(SimulatedClock(loop))
        return await work()

    try:
        return Context().run(loop.run_until_complete, run())
    finally:
        loop.close()


@asynccontextmanager
async def serving(
    folder: Path, poll_s: float, read_delay_s: Callable[[], float], **config: Any
) -> AsyncGenerator[None]:
    auth = replace(key_settings(folder, admin=f"acme/ada staff {SCOPES}"), keys_poll_s=poll_s)
    llm = ScriptedLlm()  # pyright: ignore[reportAbstractUsage] - two RPCs are asked
    llm.reply = lambda _: [*content("one "), 36_000.0]
    async with AsyncExitStack() as stack:
        served = GrpcService("headrace.v1.LlmService", llm, llm_pb2_grpc.add_LlmServiceServicer_to_server)
        await stack.enter_async_context(serving_grpc(server_settings("llm", auth), [served]))
        await stack.enter_async_context(serving_memory(folder, auth, read_delay_s))
        for name in REPLICAS:
            there = Config(
                server=server_settings(name, auth),
                config_dir=folder,
                llm_gateway_address="local:llm",
                memory_address=f"local:{MEMORY}",
                tools_address="local:nobody",
                **config,
            )
            await stack.enter_async_context(orchestrator(there))
        yield


def server_settings(name: str, auth: AuthSettings) -> ServerSettings:
    return ServerSettings(listen=f"local:{name}", transport="local", drain_s=0, auth=auth)


@asynccontextmanager
async def serving_memory(folder: Path, auth: AuthSettings, delay_s: Callable[[], float]) -> AsyncGenerator[None]:
    config = MemoryConfig(server=server_settings(MEMORY, auth), data_dir=folder / "data")
    with closing(Disk(config.logs_dir)) as disk:
        async with open_files(disk) as store, Refusals(store).following() as refusals:
            keys = build_key_service(store)
            stored = store.records.keys
            slow = SlowKeys(KeyStore(stored, uses=store.key_uses), SuspensionStore(stored), store.audit)
            slow.delay_s = delay_s
            stores = (
                build_service(store, config, refusals=refusals),
                replace(keys, servicer=slow),
                build_schedule_service(store),
                build_webhook_service(store, config),
                build_audit_service(store),
                build_data_service(store, refusals),
            )
            async with (
                following_own_keys(config, store) as own,
                serving_grpc(config.server, stores, keys=own, check_call=refusals.check_call),
            ):
                yield


@dataclass(frozen=True)
class Caller:
    """A client with a key, at one service."""

    channel: grpc.aio.Channel
    token: str

    def agents(self) -> Awaitable[Any]:
        return self._call(agent_pb2_grpc.AgentServiceStub, "ListAgents", agent_pb2.ListAgentsRequest())

    def facts(self) -> Awaitable[Any]:
        return self._call(memory_pb2_grpc.MemoryServiceStub, "ListFacts", memory_pb2.ListFactsRequest())

    async def make_key(self) -> keys_pb2.CreateKeyResponse:
        request = keys_pb2.CreateKeyRequest(name="of the test", user="ada", scopes=["ask"])
        return await self._call(keys_pb2_grpc.KeyServiceStub, "CreateKey", request)

    async def revoke_key(self, key_id: str) -> None:
        await self._call(keys_pb2_grpc.KeyServiceStub, "RevokeKey", keys_pb2.RevokeKeyRequest(key_id=key_id))

    async def find_state(self, run_id: str) -> str:
        request = operator_pb2.OperatorListRunsRequest(run_ids=[run_id])
        return (await self._call(operator_pb2_grpc.OperatorServiceStub, "ListRuns", request)).runs[0].state

    async def read_run(self, started_run_ids: asyncio.Queue[str]) -> None:
        stub: Any = agent_pb2_grpc.AgentServiceStub(self.channel)
        request = agent_pb2.QueryRequest(message="go on", agent_key="plain")
        async with reading(stub.Query(request, metadata=self._shown)) as events:
            async for event in events:
                if event.HasField("run_start"):
                    started_run_ids.put_nowait(event.run_start.run_id)

    async def _call(self, make_stub: Any, name: str, request: Any) -> Any:
        with rpc_errors():
            return await getattr(make_stub(self.channel), name)(request, timeout=60, metadata=self._shown)

    @property
    def _shown(self) -> tuple[tuple[str, str], ...]:
        return (("x-api-key", self.token),)


@asynccontextmanager
async def calling(service: str, token: str) -> AsyncGenerator[Caller]:
    async with open_channel(f"local:{service}") as channel:
        yield Caller(channel, token)


async def revoke(
    folder: Path, moment_s: float, poll_s: float, read_delay_s: Callable[[], float], **config: Any
) -> RevocationTimes:
    """Use a key at every service, revoke it at a moment, and record until when it was accepted."""
    observations, now_s = RevocationTimes(), asyncio.get_running_loop().time
    async with serving(folder, poll_s, read_delay_s, **config), AsyncExitStack() as stack:
        admin = await stack.enter_async_context(calling(MEMORY, "admin"))
        key = await admin.make_key()
        callers = [await stack.enter_async_context(calling(name, key.secret)) for name in (*REPLICAS, MEMORY)]
        started_run_ids = asyncio.Queue[str]()
        streams, runs = list[asyncio.Task[None]](), list[str]()
        for name, caller in zip(REPLICAS, callers, strict=False):
            streams.append(asyncio.create_task(caller.read_run(started_run_ids)))
            streams[-1].add_done_callback(lambda _, name=name: observations.ended_s.setdefault(name, now_s()))
            runs.append(await started_run_ids.get())
        calls = [caller.agents for caller in callers[:-1]] + [callers[-1].facts]
        async with asyncio.TaskGroup() as group:
            for name, call in zip((*REPLICAS, MEMORY), calls, strict=True):
                group.create_task(call_until_refused(call, partial(observations.accepted_s.__setitem__, name)))
            await asyncio.sleep(moment_s)
            await admin.revoke_key(key.key.key_id)
            observations.revoked_s = now_s()
        for stream in streams:
            with pytest.raises(CredentialEnded, match="revoked"):
                await stream
        for run_id, replica in zip(runs, REPLICAS, strict=True):
            async with calling(replica, "admin") as operator:
                observations.states[replica] = await operator.find_state(run_id)
    return observations


async def call_until_refused(call: Callable[[], Awaitable[Any]], accepted: Callable[[float], None]) -> None:
    """Call until the key is refused, and for some time after, to check that it stays refused."""
    now_s = asyncio.get_running_loop().time
    is_refused, until_s = False, now_s() + WATCHED_S
    while now_s() < until_s:
        began_s = now_s()
        try:
            await call()
            assert not is_refused, "a revoked key was accepted again"
            accepted(began_s)
        except CredentialEnded:
            is_refused = True
        await asyncio.sleep(CALL_EVERY_S)
    assert is_refused


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADRACE_TRANSPORT", "local")
    return write_agents(tmp_path / "first")


def write_agents(folder: Path) -> Path:
    (folder / "agents").mkdir(parents=True)
    agent = {"mode": "ONESHOT", "modelConfig": MODEL, "plain": {"systemPrompt": "Answer."}}
    (folder / "agents" / "plain.json").write_text(json.dumps(agent))
    return folder


MOMENTS_S: Sequence[float] = [0.0, 0.3, 0.9, 1.7, 2.6, 3.4]
"""Times of the revocation, at different positions between two polls."""


@pytest.mark.parametrize("moment_s", check_first(MOMENTS_S, 2))
@pytest.mark.parametrize(("poll_s", "is_slow"), [(1.0, False), (KEYS_POLL_S_MAX, True)])
def test_a_revoked_key_is_refused_everywhere_within_5_s(
    place: Path, moment_s: float, poll_s: float, is_slow: bool
) -> None:
    """With the default poll interval, and in the worst case of settings and of a memory that just meets its timeout."""
    random = Random(moment_s)
    delay_s = (lambda: SLOW_READ_S) if is_slow else (lambda: random.uniform(0.001, 0.02))
    observations = simulate(1, lambda: revoke(place, moment_s, poll_s, delay_s))
    assert observations.longest_s <= BOUND_S, observations
    assert set(observations.accepted_s) == {*REPLICAS, MEMORY}
    assert set(observations.ended_s) == {*REPLICAS}
    assert set(observations.states.values()) == {"running"}, "runs continue by default"


def test_with_revoked_key_runs_cancel_runs_end_with_their_key(place: Path) -> None:
    observations = simulate(2, lambda: revoke(place, 0.5, 1.0, lambda: 0.01, revoked_key_runs="cancel"))
    assert observations.longest_s <= BOUND_S
    assert set(observations.states.values()) == {"cancelled"}


@pytest.mark.nightly
def test_slow_polls_and_a_slow_memory_delay_a_revocation(place: Path) -> None:
    """A slow memory and rare polls do cost seconds, which shows that the bound above is meaningful."""
    slow = [
        simulate(
            3, lambda at=moment_s: revoke(write_agents(place / f"{at}"), at, KEYS_POLL_S_MAX, lambda: SLOW_READ_S)
        ).longest_s
        for moment_s in MOMENTS_S
    ]
    assert max(slow) > KEYS_POLL_S_MAX
