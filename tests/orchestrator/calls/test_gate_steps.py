"""An open gate is delegated, or its requester is asked back; the log has each step with its author."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.errors import InvalidRequest, PermissionDenied
from headrace.v1 import gates_pb2, tools_pb2
from services.runtime.clock import now_ms
from tests.support.local_client import open_client
from tests.support.orchestrator import ANSWER, Serve, kinds, only, replica, two_replicas
from tests.support.orchestrator.answerers import ACCEPTED, DENIED, FINANCE, KEYS, LISTED, SILENT, as_user, asking, offer
from tests.support.orchestrator.gate_runs import (
    delegate,
    killing_owner,
    read_as,
    reading_run,
    try_answer,
    try_as,
    waiting_run,
)


async def ask_back(address: str, name: str, gate: tuple[str, str], note: str, **fields: Any) -> str:
    return await try_as(address, name, lambda client: client.ask_back(*gate, note, **fields))


@pytest.mark.parametrize("kind", ["approval", "form"])
async def test_a_delegate_finds_and_answers_the_gate(kind: str, serve: Serve) -> None:
    async with waiting_run(serve, FINANCE, kind) as (suite, gate, run):
        assert await delegate(suite.address, "cleo", gate, "user:cleo") == SILENT
        assert await delegate(suite.address, "ada", gate, "user:cleo") == DENIED
        assert await delegate(suite.address, "reader", gate, "user:cleo") == DENIED
        assert await delegate(suite.address, "bob", gate, "user:ada") == "INVALID_REQUEST"
        for bad_targets in (["tenant"], ["cleo"], [], ["user:a"] * 17):
            async with as_user(suite.address, "bob") as client:
                with pytest.raises(InvalidRequest, match="to: must"):
                    await client.delegate_gate(*gate, bad_targets)
        assert await try_answer(suite.address, "cleo", gate) == SILENT
        for _ in range(2):  # Repeating the request adds no second step.
            assert await delegate(suite.address, "bob", gate, "user:cleo", note="away", request_id="r1") == "delegated"
        # To a role that the requester has: four eyes holds.
        assert await delegate(suite.address, "cleo", gate, "role:board") == "delegated"
        assert await try_answer(suite.address, "ada", gate) == DENIED
        async with as_user(suite.address, "cleo") as client:
            [listed] = (await client.gates()).gates
            assert [*listed.answerers.any_of] == ["role:finance", "user:cleo", "role:board"]
            gate_details = await client.gate(*gate)
        assert [(step.step, step.by, [*step.to], step.note) for step in gate_details.steps] == [
            ("delegated", "bob", ["user:cleo"], "away"),
            ("delegated", "cleo", ["role:board"], ""),
        ]
        assert await try_answer(suite.address, "cleo", gate) == ACCEPTED
        events = await run
        assert await delegate(suite.address, "bob", gate, "user:cleo") == "closed"
    assert only(events, "request.submit")["by"] == "cleo"
    assert events[-1]["type"] == "run.complete"


async def test_the_requester_is_asked_back_and_replies_while_the_gate_stays_open(serve: Serve) -> None:
    async with waiting_run(serve, FINANCE) as (suite, gate, run):
        assert await ask_back(suite.address, "cleo", gate, "what for?") == SILENT
        assert await ask_back(suite.address, "bob", gate, "") == "INVALID_REQUEST"
        assert await ask_back(suite.address, "bob", gate, "x" * 4001) == "INVALID_REQUEST"
        for _ in range(2):
            assert await ask_back(suite.address, "bob", gate, "what for?", request_id="r1") == "asked_back"
        assert await ask_back(suite.address, "ada", gate, "the mill") == "asked_back"
        async with as_user(suite.address, "bob") as client:
            gate_details = await client.gate(*gate)
        assert gate_details.state == "open"
        assert gate_details.opened_at <= gate_details.steps[0].at <= gate_details.steps[1].at <= now_ms()
        assert [(step.step, step.by, step.note) for step in gate_details.steps] == [
            ("asked_back", "bob", "what for?"),
            ("asked_back", "ada", "the mill"),
        ]
        assert await try_answer(suite.address, "bob", gate) == ACCEPTED
        events = await run
    steps = [event for event in events if event["type"] == "gate.step"]
    assert [(step["by"], step["credential"][:8]) for step in steps] == [("bob", "api_key:"), ("ada", "api_key:")]


async def test_a_delegation_applies_at_other_replicas_and_after_the_owner_is_killed(serve: Serve) -> None:
    async with serve(asking("approval"), ANSWER, keys=KEYS, **LISTED) as suite, two_replicas(suite) as (a, b):
        offer(suite, FINANCE)
        suite.tools.effects = [tools_pb2.CheckEffectResponse(state="not_done")]
        async with killing_owner(suite, a) as (gate, _):
            assert await delegate(b.address, "bob", gate, "user:cleo", request_id="r1") == "delegated"
        assert await delegate(b.address, "bob", gate, "user:cleo", request_id="r1") == "delegated"
        assert await try_answer(b.address, "ada", gate) == DENIED
        assert await try_answer(b.address, "cleo", gate) == ACCEPTED
        events = await read_as(b.address, "ada", gate[0])
    assert events[-1]["type"] == "run.complete"
    assert kinds(events, "gate.step") == ["gate.step"]
    assert len(suite.tools.requests) == 1


WAIT_S = 100.0


async def read(news: AsyncIterator[gates_pb2.WatchGatesResponse], count: int = 1) -> list[Any]:
    """Return the next items: the names of list_begin and list_end, and gates."""
    async with asyncio.timeout(WAIT_S):
        responses = [await anext(news) for _ in range(count)]
    return [
        getattr(response, kind) if (kind := response.WhichOneof("event")) == "gate" else kind for response in responses
    ]


EMPTY = ["list_begin", "list_end"]


async def test_answerers_watch_a_gate_change_at_any_replica(serve: Serve) -> None:
    async with serve(asking("approval"), ANSWER, keys=KEYS, **LISTED) as suite, two_replicas(suite) as (a, b):
        offer(suite, FINANCE)
        async with (
            as_user(a.address, "ada") as ada,
            as_user(b.address, "bob") as bob,
            as_user(b.address, "cleo") as cleo,
            bob.watch_gates() as of_bob,
            cleo.watch_gates() as of_cleo,
            ada.watch_gates(scope="own") as of_ada,
            ada.watch_gates() as answerable,
        ):
            for news in (of_bob, of_cleo, of_ada, answerable):
                assert await read(news, 2) == EMPTY
            async with reading_run(ada) as (gate, _, _):
                [opened], [own] = await read(of_bob), await read(of_ada)
                assert opened == own
                assert ((opened.run_id, opened.gate_id), opened.state, opened.requester) == (gate, "open", "ada")
                assert not opened.HasField("arguments")
                await bob.claim_gate(*gate, "desk")
                assert [watched.claimed_by for watched in await read(of_bob) + await read(of_ada)] == ["bob", "bob"]
                await bob.release_gate(*gate, "desk")
                assert [watched.HasField("claimed_by") for watched in await read(of_bob) + await read(of_ada)] == [
                    False
                ] * 2
                assert await delegate(b.address, "bob", gate, "user:cleo") == "delegated"
                [delegated_gate] = await read(of_cleo)
                assert [*delegated_gate.answerers.any_of] == ["role:finance", "user:cleo"]
                assert await read(of_bob) == await read(of_ada) == [delegated_gate]
                assert await try_answer(b.address, "cleo", gate) == ACCEPTED
                for news in (of_bob, of_cleo, of_ada):
                    [closed] = await read(news)
                    assert (closed.state, closed.answered_by) == ("answered", "cleo")
            # The requester, who may not answer the gate, got nothing about it: their watch just ends.
            await b.stop()
            await a.stop()
            assert await read_end(answerable) == []


async def read_end(news: AsyncIterator[gates_pb2.WatchGatesResponse]) -> list[Any]:
    """Return the remaining items; the watch must end without an error."""
    async with asyncio.timeout(WAIT_S):
        return [response async for response in news]


async def test_a_stopping_replica_does_not_wait_for_watches(serve: Serve) -> None:
    async with (
        serve() as suite,
        replica(suite, "c", drain_s=300) as stopping,
        open_client(stopping.address) as client,
        client.watch_gates() as news,
    ):
        assert await read(news, 2) == EMPTY
        async with asyncio.timeout(WAIT_S):
            await stopping.stop()
        assert await read_end(news) == []


async def test_watching_the_tenants_gates_needs_the_scope_operate(serve: Serve) -> None:
    async with serve(keys=KEYS) as suite:
        with pytest.raises(PermissionDenied):
            async with as_user(suite.address, "bob") as bob, bob.watch_gates(scope="tenant") as news:
                await read(news)
        async with as_user(suite.address, "operator") as operator, operator.watch_gates(scope="tenant") as news:
            assert await read(news, 2) == EMPTY
