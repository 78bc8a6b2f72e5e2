"""Runs of a chat that its owner shares: colleagues read them, at any replica, and do nothing else."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import product

import pytest

from headrace.client import Client
from headrace.errors import HeadraceError, NotFound
from tests.support.orchestrator import Serve, answer, as_json, ask_for, content, finish, only, run_of, two_replicas
from tests.support.orchestrator.answerers import as_member
from tests.support.orchestrator.runs import follow
from tests.support.order import Event, check_order, texts

KEYS = {"ada": "acme/ada", "bob": "acme/bob finance", "cleo": "acme/cleo", "stranger": "globex/bob finance"}
"""By the key; ada asks."""

SAYS = "All is well with the mill."

REFUSALS = ["NOT_FOUND"] * 5 + ["PERMISSION_DENIED", "NOT_FOUND", "PERMISSION_DENIED"]
"""Who reads a chat is told that copies and questions are for those who take part; the rest is the owner's alone."""


async def list_refusals(client: Client, chat_id: str, run_id: str) -> list[str]:
    """What a reader is told who does more than read."""
    reasons: list[str] = []
    for change in (
        client.cancel(run_id),
        client.steer(run_id, "Stop."),
        client.submit(run_id, "1", tool_id="call_1"),
        client.rename_chat(chat_id, "Mine"),
        client.share_chat(chat_id, "tenant"),
        client.fork(chat_id),
        client.delete_chat(chat_id),
        ask_for(client, "And I?", agent_key="oneshot", chat_id=chat_id),
    ):
        try:
            await change
        except HeadraceError as error:
            reasons.append(error.reason)
        else:
            reasons.append("done")
    return reasons


@pytest.mark.parametrize("names", [["role:finance"], ["user:bob"], ["tenant"]])
async def test_a_colleague_follows_a_run_on_its_way_at_any_replica(serve: Serve, names: list[str]) -> None:
    go_on = asyncio.Barrier(2)
    turn = [*content("All is ", "well "), go_on, *content("with the mill."), *finish()]
    async with (
        serve(turn, keys=KEYS) as suite,
        two_replicas(suite) as (a, b),
        AsyncExitStack() as stack,
        asyncio.TaskGroup() as group,
    ):
        ada = await stack.enter_async_context(as_member(suite, a.address, "ada"))
        begun: asyncio.Future[tuple[str, str]] = asyncio.get_running_loop().create_future()
        own = group.create_task(ask(ada, begun))
        chat_id, run_id = await begun
        addresses = (a.address, b.address)
        for address, name in product(addresses, ("bob", "cleo", "stranger")):
            async with as_member(suite, address, name) as client:
                with pytest.raises(NotFound):
                    await follow(client, run_id, asyncio.Event())
        await ada.share_chat(chat_id, *names)
        readings: list[asyncio.Task[list[Event]]] = []
        for address in addresses:
            bob = await stack.enter_async_context(as_member(suite, address, "bob"))
            heard = asyncio.Event()
            readings.append(group.create_task(follow(bob, run_id, heard)))
            await heard.wait()
            assert (await bob.run(run_id)).state == "running"
            assert [run.run_id for run in (await bob.chat_runs(chat_id)).runs] == [run_id]
            assert await list_refusals(bob, chat_id, run_id) == REFUSALS
            async with as_member(suite, address, "stranger") as stranger:
                with pytest.raises(NotFound):
                    await follow(stranger, run_id, asyncio.Event())
        await go_on.wait()
        events = await own
        check_order(events)
        for reading in readings:
            read = await reading
            assert read[-1] == events[-1]
            assert "".join(texts(read, "content")) == "".join(texts(events, "content")) == SAYS


async def ask(client: Client, begun: asyncio.Future[tuple[str, str]]) -> list[Event]:
    events: list[Event] = []
    async with client.ask("How is the mill?", agent_key="oneshot") as deltas:
        async for delta in deltas:
            events.append(event := as_json(delta))
            if event["type"] == "content.delta" and not begun.done():
                begun.set_result((only(events, "run.start")["chatId"], run_of(events)))
    return events


async def test_a_colleague_reads_what_has_ended_until_it_is_shared_no_more(serve: Serve) -> None:
    async with serve(answer(SAYS), keys=KEYS) as suite:
        await suite.ask(agent="oneshot")
        [run_id] = suite.run_ids
        await suite.client.share_chat(suite.chat_id, "user:bob")
        async with as_member(suite, suite.address, "bob") as bob:
            [listed] = (await bob.chats(scope="shared")).chats
            assert (listed.chat_id, listed.owner) == (suite.chat_id, "ada")
            read = await follow(bob, run_id, asyncio.Event())
            ends = [(event["type"], event["seq"]) for event in (read[0], read[-1])]
            assert ends == [("request.query", 1), ("run.complete", 7)]
            assert [run.state for run in (await bob.chat_runs(suite.chat_id)).runs] == ["completed"]
            assert await list_refusals(bob, suite.chat_id, run_id) == REFUSALS
            await suite.client.share_chat(suite.chat_id)
            for reading in (follow(bob, run_id, asyncio.Event()), bob.run(run_id), bob.chat_runs(suite.chat_id)):
                with pytest.raises(NotFound):
                    await reading
