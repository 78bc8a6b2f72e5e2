"""Whoever made an API key knows its text, so votes and four eyes count them and the key's user as one person.

The facade names callers and the makers of their keys, as memory stores them. This also holds after a crash.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import pytest

from headrace.errors import HeadraceError, InvalidRequest, PermissionDenied
from headrace.streams import reading, rpc_errors
from headrace.v1 import agent_pb2, agent_pb2_grpc, gates_pb2, gates_pb2_grpc
from services.runtime.auth.callers import FACADE
from services.runtime.auth.identity import DEFAULT_SCOPES, Identity, acting_as
from services.runtime.rpc.channels import build_caller_metadata, open_channel
from tests.support.orchestrator import ANSWER, Serve, two_replicas
from tests.support.orchestrator.answerers import APPROVE, KEYS, LISTED, asking, offer
from tests.support.orchestrator.crashes import Crashes
from tests.support.orchestrator.suite import Suite

FOUR_EYES = {"any_of": ["tenant"], "not_requester": True}
TWO = {"any_of": ["tenant"], "count": 2}


def key_holder(user: str, *makers: str) -> Identity:
    return Identity("acme", user, f"api_key:{user:0>12}", scopes=DEFAULT_SCOPES, makers=frozenset(makers))


MALLORY, BOB = key_holder("mallory"), key_holder("bob")
GHOST, SPOOK = key_holder("ghost", "mallory"), key_holder("spook", "mallory", "root")


@asynccontextmanager
async def facade_channel(suite: Suite, address: str) -> AsyncGenerator[grpc.aio.Channel]:
    async with open_channel(address, build_caller_metadata(suite.config.server.auth, FACADE)) as channel:
        yield channel


async def ask(channel: grpc.aio.Channel, who: Identity, gates: asyncio.Queue[tuple[str, str]]) -> None:
    """Read a run of `who` to its end, and put the gates that it opens into `gates`."""
    stub: Any = agent_pb2_grpc.AgentServiceStub(channel)
    with acting_as(who), rpc_errors():
        async with reading(stub.Query(agent_pb2.QueryRequest(message="act", agent_key="react"))) as events:
            run_id = ""
            async for event in events:
                run_id = event.run_start.run_id or run_id
                if event.HasField("gate_open"):
                    gates.put_nowait((run_id, event.gate_open.gate_id))


async def answer(channel: grpc.aio.Channel, who: Identity, gate: tuple[str, str]) -> str:
    stub: Any = agent_pb2_grpc.AgentServiceStub(channel)
    with acting_as(who), rpc_errors():
        request = agent_pb2.SubmitRequest(run_id=gate[0], approval_id=gate[1], payload=APPROVE)
        return (await stub.Submit(request)).status


@asynccontextmanager
async def waiting_at_gate(
    serve: Serve, rule: dict[str, Any], who: Identity, *, is_killed: bool
) -> AsyncGenerator[tuple[grpc.aio.Channel, tuple[str, str]]]:
    """Let a run of `who` wait at a gate with this rule; `is_killed`: its owner died, and another took it over."""
    async with serve(asking("approval"), ANSWER, keys=KEYS, **LISTED) as suite, two_replicas(suite) as (a, b):
        offer(suite, rule)
        gates = asyncio.Queue[tuple[str, str]]()
        async with facade_channel(suite, a.address) as first, facade_channel(suite, b.address) as second:
            run = asyncio.create_task(ask(first, who, gates))
            gate = await gates.get()
            if is_killed:
                Crashes(suite).kill(gate[0])
                await a.stop()
            yield second if is_killed else first, gate
            run.cancel()
            with suppress(HeadraceError, asyncio.CancelledError):
                await run


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize(("requester", "answerer"), [(MALLORY, GHOST), (GHOST, MALLORY), (GHOST, SPOOK)])
async def test_four_eyes_need_two_persons(
    serve: Serve, requester: Identity, answerer: Identity, *, is_killed: bool
) -> None:
    async with waiting_at_gate(serve, FOUR_EYES, requester, is_killed=is_killed) as (channel, gate):
        stub: Any = gates_pb2_grpc.GateServiceStub(channel)
        for name in requester.persons:
            to = [f"user:{name}"]
            with acting_as(BOB), pytest.raises(InvalidRequest, match="four eyes"), rpc_errors():
                await stub.DelegateGate(gates_pb2.DelegateGateRequest(run_id=gate[0], gate_id=gate[1], to=to))
        with pytest.raises(PermissionDenied, match="'mallory' knows your API key"):
            await answer(channel, answerer, gate)
        assert await answer(channel, BOB, gate) == "accepted"


async def test_two_votes_need_two_persons(serve: Serve) -> None:
    async with waiting_at_gate(serve, TWO, key_holder("ada"), is_killed=False) as (channel, gate):
        assert await answer(channel, GHOST, gate) == "voted"
        assert await answer(channel, SPOOK, gate) == "duplicate"
        assert await answer(channel, MALLORY, gate) == "duplicate"
        assert await answer(channel, BOB, gate) == "accepted"
