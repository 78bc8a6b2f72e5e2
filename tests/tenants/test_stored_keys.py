"""Keys made by RPC, over three orchestrators, the facade, memory and tools: an ended key is refused everywhere."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog

from headrace.client import Client
from headrace.errors import CredentialEnded, QuotaExceeded, Unauthenticated
from headrace.sse import SseReader
from headrace.streams import reading, rpc_errors
from headrace.v1 import agent_pb2, agent_pb2_grpc, gates_pb2, gates_pb2_grpc, keys_pb2
from services.orchestrator.config import Config
from services.orchestrator.server import orchestrator
from services.runtime.auth.identity import Identity, acting_as
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import open_channel
from tests.support.tenants.suite import (
    ADA,
    KEYS,
    SLOW,
    TIMEOUT_S,
    TenantSuite,
    behind_gateway,
    fresh,
    serving_tenants,
    until_refused,
)

CAT = Identity("acme", "cat")


@dataclass(frozen=True)
class Stage:
    suite: TenantSuite
    replicas: Sequence[str]
    """Addresses of the orchestrators."""

    def client(self, token: str, replica: int = 0) -> Client:
        return self.suite.connect(token, self.replicas[replica])

    async def make_key(self, **fields: Any) -> keys_pb2.CreateKeyResponse:
        return await self.suite.make_key("of the test", CAT.user, **fields)

    async def revoke_key(self, made: keys_pb2.CreateKeyResponse) -> None:
        async with self.client(KEYS[ADA]) as admin:
            await admin.revoke_key(made.key.key_id)

    async def run_state(self, run_id: str) -> str:
        """Return the state of a run of Cat's, from the replica that owns it."""
        with acting_as(CAT):
            for address in self.replicas:
                async with open_channel(address, self.suite.shown) as channel:
                    stub: Any = agent_pb2_grpc.AgentServiceStub(channel)
                    with rpc_errors():
                        run = (await stub.GetRun(agent_pb2.GetRunRequest(run_id=run_id))).run
                    if run.state:
                        return run.state
        raise AssertionError("nobody has it")


@asynccontextmanager
async def stage(folder: Path) -> AsyncGenerator[Stage]:
    async with asyncio.timeout(TIMEOUT_S), serving_tenants(folder) as suite, AsyncExitStack() as stack:
        replicas = [suite.addresses["orchestrator"]]
        for _ in range(2):
            other = Config(
                server=ServerSettings(listen="127.0.0.1:0", drain_s=0, auth=suite.settings),
                config_dir=folder,
                llm_gateway_address=suite.addresses["llm_gateway"],
                memory_address=suite.addresses["memory"],
                tools_address=suite.addresses["tools"],
            )
            replicas.append((await stack.enter_async_context(orchestrator(other))).addresses[0])
        yield Stage(suite, replicas)


async def ask_slowly(client: Client, started_run_ids: asyncio.Queue[str]) -> None:
    """Start a run without an end and read it; the error that ends the stream is raised."""
    async with client.ask(SLOW, agent_key="plain") as run:
        async for event in run:
            if event.HasField("run_start"):
                started_run_ids.put_nowait(event.run_start.run_id)


async def watch_gates(stage: Stage, secret: str, watching: asyncio.Queue[str]) -> None:
    async with open_channel(stage.replicas[1]) as channel:
        stub: Any = gates_pb2_grpc.GateServiceStub(channel)
        call = stub.WatchGates(gates_pb2.WatchGatesRequest(), metadata=(("x-api-key", secret),))
        async with reading(call) as answers:
            async for _ in answers:
                watching.put_nowait("")


async def ask_over_http(
    http: aiohttp.ClientSession, secret: str, started_run_ids: asyncio.Queue[str]
) -> tuple[str | None, Any]:
    """Return the event type and the data of the last frame of a stream that has ended."""
    reader, last = SseReader(), None
    body, headers = {"message": SLOW, "agentKey": "plain"}, {"X-API-Key": secret}
    async with http.post("/api/query", json=body, headers=headers) as response:
        async for chunk in response.content.iter_any():
            for frame in reader.feed(chunk):
                if frame.data == b"[DONE]":  # The run ended first.
                    break
                data, last = json.loads(frame.data), frame
                if data.get("type") == "run.start":
                    started_run_ids.put_nowait(data["runId"])
    assert last is not None
    return last.event, json.loads(last.data)


async def test_a_revoked_key_is_refused_at_every_replica_and_its_runs_continue(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logged:
        async with stage(tmp_path) as stage_, AsyncExitStack() as stack:
            key = await stage_.make_key()
            clients = [await stack.enter_async_context(stage_.client(key.secret, n)) for n in range(3)]
            started_run_ids, watched = asyncio.Queue[str](), asyncio.Queue[str]()
            streams = [asyncio.create_task(ask_slowly(client, started_run_ids)) for client in clients]
            streams.append(asyncio.create_task(watch_gates(stage_, key.secret, watched)))
            fronts = (stage_.suite.http, await stack.enter_async_context(behind_gateway(stage_.suite)))
            http_streams = [asyncio.create_task(ask_over_http(http, key.secret, started_run_ids)) for http in fronts]
            runs = [await started_run_ids.get() for _ in range(5)]
            await watched.get()
            await stage_.revoke_key(key)
            for stream in streams:
                with pytest.raises(CredentialEnded, match="revoked"):
                    await stream
            for stream in http_streams:
                kind, last = await stream
                assert (kind, last["code"], last["error"]["code"]) == ("error", 401, "CREDENTIAL_ENDED")
            for client in clients:
                with pytest.raises(CredentialEnded):
                    await client.agents()
            await until_refused(clients[0].facts)  # Memory and tools poll at other times.
            await until_refused(lambda: clients[0].upload("notes.txt", b"hello"))
            for http in fronts:
                async with http.get("/api/agents", headers={"X-API-Key": key.secret}) as response:
                    assert response.status == 401
                    assert (await response.json())["error"]["code"] == "CREDENTIAL_ENDED"
            assert {await stage_.run_state(run_id) for run_id in runs} == {"running"}
    assert key.secret.removeprefix("hrk_") not in str(logged)


async def test_the_limits_of_a_key_apply_across_all_replicas(tmp_path: Path) -> None:
    async with stage(tmp_path) as stage_, AsyncExitStack() as stack:
        key = await stage_.make_key(runs_max=2)
        started_run_ids = asyncio.Queue[str]()
        clients = [await stack.enter_async_context(stage_.client(key.secret, n)) for n in range(3)]
        streams = [asyncio.create_task(ask_slowly(client, started_run_ids)) for client in clients[:2]]
        runs = [await started_run_ids.get() for _ in streams]
        for client in clients:
            with pytest.raises(QuotaExceeded, match="2 live runs"):
                await ask_slowly(client, started_run_ids)
        await clients[0].cancel(runs[0])
        streams.append(asyncio.create_task(ask_until_started(clients[2], started_run_ids)))
        runs.append(await started_run_ids.get())
        for run_id in runs[1:]:
            await clients[0].cancel(run_id)
        await asyncio.gather(*streams)

        limited = await stage_.make_key(requests_per_minute=5)
        limited_clients = [await stack.enter_async_context(stage_.client(limited.secret, n)) for n in range(3)]
        answers = await asyncio.gather(
            *(client.agents() for client in limited_clients * 4), limited_clients[0].facts(), return_exceptions=True
        )
        assert sum(not isinstance(answer, BaseException) for answer in answers) == 5
        refused = [answer for answer in answers if isinstance(answer, BaseException)]
        assert all(isinstance(error, QuotaExceeded) for error in refused), refused
        with pytest.raises(Unauthenticated):
            async with stage_.client("hrk_nobodys") as nobody:
                await nobody.agents()


async def ask_until_started(client: Client, started_run_ids: asyncio.Queue[str]) -> None:
    while True:  # A place becomes free a moment after its run's end.
        try:
            return await ask_slowly(client, started_run_ids)
        except QuotaExceeded:
            await asyncio.sleep(0.02)


async def test_one_http_request_counts_as_one_call_of_its_key_at_either_facade(tmp_path: Path) -> None:
    async with stage(tmp_path) as stage_, AsyncExitStack() as stack:
        fronts = (stage_.suite.http, await stack.enter_async_context(behind_gateway(stage_.suite)))
        for http in fronts:
            for path in ("/api/cancel", f"/v1/responses/resp_{fresh()}/cancel"):
                limited, statuses = await stage_.make_key(requests_per_minute=2), list[int]()
                for _ in range(3):
                    headers = {"X-API-Key": limited.secret}
                    async with http.post(path, json={"runId": fresh()}, headers=headers) as response:
                        statuses.append(response.status)
                assert statuses == [404, 404, 429], path


async def test_a_suspended_user_is_refused_everywhere_until_released(tmp_path: Path) -> None:
    async with stage(tmp_path) as stage_, AsyncExitStack() as stack:
        suite, started_run_ids, watched = stage_.suite, asyncio.Queue[str](), asyncio.Queue[str]()
        key = await stage_.make_key()
        clients = [await stack.enter_async_context(stage_.client(key.secret, n)) for n in range(3)]
        streams = [asyncio.create_task(ask_slowly(client, started_run_ids)) for client in clients]
        streams.append(asyncio.create_task(watch_gates(stage_, key.secret, watched)))
        http_stream = asyncio.create_task(ask_over_http(suite.http, key.secret, started_run_ids))
        runs = [await started_run_ids.get() for _ in range(4)]
        await watched.get()
        admin = await stack.enter_async_context(stage_.client(KEYS[ADA]))
        await admin.suspend_user(CAT.user)
        ended = await asyncio.gather(*streams, return_exceptions=True)
        assert all(isinstance(error, CredentialEnded) or error is None for error in ended), ended
        await http_stream
        for call in (*(client.agents for client in clients), clients[0].facts):
            await until_refused(call)
        while {await stage_.run_state(run_id) for run_id in runs} != {"cancelled"}:
            await asyncio.sleep(0.02)
        async with suite.http.get("/api/agents", headers={"X-API-Key": key.secret}) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (401, "CREDENTIAL_ENDED")
        assert [suspension.user for suspension in await admin.suspended_users()] == [CAT.user]
        await admin.release_user(CAT.user)
        while not await is_in(clients[0]):
            await asyncio.sleep(0.02)


async def is_in(client: Client) -> bool:
    try:
        await client.agents()
    except CredentialEnded:
        return False
    return True
