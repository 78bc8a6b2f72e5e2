"""Who may answer a gate is told of it as it opens and changes, at any replica, until the service stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.client import Client
from headrace.errors import PermissionDenied
from headrace.v1 import gates_pb2
from tests.support.orchestrator import Serve, replica, two_replicas
from tests.support.orchestrator.answerers import (
    ACCEPTED,
    FINANCE,
    KEYS,
    LISTED,
    Asked,
    as_user,
    asking,
    delegate,
    offer,
    try_answer,
)
from tests.support.orchestrator.steps import ANSWER

WAIT_S = 100.0


async def read(news: AsyncIterator[gates_pb2.WatchGatesResponse], count: int = 1) -> list[Any]:
    """What comes next: the names of list_begin and list_end, and gates."""
    async with asyncio.timeout(WAIT_S):
        told = [await anext(news) for _ in range(count)]
    return [getattr(one, kind) if (kind := one.WhichOneof("event")) == "gate" else kind for one in told]


EMPTY = ["list_begin", "list_end"]


async def test_those_who_may_answer_are_told_of_it_at_any_replica(serve: Serve) -> None:
    async with serve(asking("approval"), ANSWER, keys=KEYS, **LISTED) as suite, two_replicas(suite) as (a, b):
        offer(suite, FINANCE)
        asked = Asked()
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
            run = asyncio.create_task(asked.follow(ada))
            gate = await asked.gate
            [opened], [own] = await read(of_bob), await read(of_ada)
            assert opened == own
            assert ((opened.run_id, opened.gate_id), opened.state, opened.requester) == (gate, "open", "ada")
            assert not opened.HasField("arguments")
            await bob.claim_gate(*gate, "desk")
            assert [one.claimed_by for one in await read(of_bob) + await read(of_ada)] == ["bob", "bob"]
            await bob.release_gate(*gate, "desk")
            assert [one.HasField("claimed_by") for one in await read(of_bob) + await read(of_ada)] == [False, False]
            assert await delegate(b.address, "bob", gate, "user:cleo") == "delegated"
            [passed] = await read(of_cleo)
            assert [*passed.answerers.any_of] == ["role:finance", "user:cleo"]
            assert await read(of_bob) == await read(of_ada) == [passed]
            assert await try_answer(b.address, "cleo", gate) == ACCEPTED
            for news in (of_bob, of_cleo, of_ada):
                [closed] = await read(news)
                assert (closed.state, closed.answered_by) == ("answered", "cleo")
            await run
            # Nothing was told to the requester, who may not answer it: the next thing is the end.
            await b.stop()
            await a.stop()
            assert await read_end(answerable) == []


async def read_end(news: AsyncIterator[gates_pb2.WatchGatesResponse]) -> list[Any]:
    """What comes until the end, which comes without an error."""
    async with asyncio.timeout(WAIT_S):
        return [one async for one in news]


async def test_who_stops_does_not_wait_for_watches(serve: Serve) -> None:
    async with (
        serve() as suite,
        replica(suite, "c", drain_s=300) as one,
        Client(one.address) as client,
        client.watch_gates() as news,
    ):
        assert await read(news, 2) == EMPTY
        async with asyncio.timeout(WAIT_S):
            await one.stop()
        assert await read_end(news) == []


async def test_the_tenants_gates_need_the_scope_operate(serve: Serve) -> None:
    async with serve(keys=KEYS) as suite:
        with pytest.raises(PermissionDenied):
            async with as_user(suite.address, "bob") as bob, bob.watch_gates(scope="tenant") as news:
                await read(news)
        async with as_user(suite.address, "operator") as operator, operator.watch_gates(scope="tenant") as news:
            assert await read(news, 2) == EMPTY
