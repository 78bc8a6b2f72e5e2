"""Holds: nobody can delete or erase the data they name."""

import asyncio
import json

import pytest

from headrace.errors import Erasing, Held, InvalidRequest, NotFound, PermissionDenied
from headrace.v1 import data_pb2
from services.memory.data.retention import SameForAll, prune_chats
from services.runtime.auth.identity import Identity, acting_as
from tests.support.memory import people
from tests.support.memory.engines import Files, Kept, open_engine
from tests.support.memory.people import ADA, ADMIN, BOB
from tests.support.memory.writing import Memory

pytestmark = pytest.mark.engines


async def list_holds(memory: Memory, who: Identity = ADMIN, *, ended: bool = False) -> list[data_pb2.Hold]:
    return list((await memory.call_as(who, "ListHolds", all=ended)).holds)


def list_held_chats(erasure: data_pb2.Erasure) -> list[tuple[str, str]]:
    return [(item.what, item.reason) for item in erasure.kept if item.name == "held_chat"]


@pytest.mark.parametrize("kind", ["user", "chat", "tenant"])
async def test_held_data_is_not_deleted_until_the_hold_is_released(kept: Kept, kind: str) -> None:
    async with people.furnished(kept, ADA) as (memory, (ada,)):
        hold = await people.place_hold(memory, **{kind: {"user": "ada", "chat": ada["chat"], "tenant": "acme"}[kind]})
        with acting_as(ADA), pytest.raises(Held) as caught:
            await memory.delete(ada["chat"])
        assert caught.value.metadata["holdId"] == hold.hold_id
        if kind != "chat":
            with acting_as(ADA), pytest.raises(Held):
                await memory.delete_fact(ada["fact"])
            with acting_as(ADA), pytest.raises(Held):
                await memory.update_fact(ada["fact"], text="another")
            with acting_as(ADA), pytest.raises(Held):
                await memory.call("DeleteSchedule", schedule_id=ada["schedule"])
    async with kept.memory() as memory:  # the hold survives a restart
        assert [listed.hold_id for listed in await list_holds(memory)] == [hold.hold_id]
        ended = await people.release(memory, hold.hold_id)
        assert ended.released_by == "op"
        assert await people.release(memory, hold.hold_id) == ended
        assert not await list_holds(memory)
        assert await list_holds(memory, ended=True) == [ended]
        await memory.acting_as(ADA).delete(ada["chat"])


async def test_a_tenants_fact_of_a_held_user_is_not_deleted_by_others(kept: Kept) -> None:
    async with people.furnished(kept, ADA, BOB, tenant_facts=True) as (memory, (_, bob)):
        fact_id = await memory.acting_as(ADA).remember("the office is in Oslo", scope="tenant")
        await people.place_hold(memory, user="ada")
        with acting_as(BOB):
            with pytest.raises(Held):
                await memory.delete_fact(fact_id)
            with pytest.raises(Held):
                await memory.update_fact(fact_id, text="another")
            await memory.remember("the office is in Bergen", scope="tenant", replaces=[fact_id])
            await memory.delete_fact(bob["fact"])
        with acting_as(ADA):
            ended = [fact.text for fact in await memory.list_facts(include_ended=True) if fact.fact_id == fact_id]
        assert ended == ["the office is in Oslo"]


@pytest.mark.engines("postgres")
async def test_erasing_a_held_user_is_refused_and_an_erasure_leaves_out_a_held_chat(kept: Kept) -> None:
    async with people.furnished(kept, ADA, BOB) as (memory, (ada, _)):
        hold = await people.place_hold(memory, user="ada")
        with pytest.raises(Held):
            await people.request_erasure(memory, user="ada")
        await people.release(memory, hold.hold_id)
        held = await people.place_hold(memory, chat=ada["chat"])
        before = await kept.log(ada["chat"])
        erasure = await people.erase(memory, user="ada")
        assert people.count(erasure) == {"facts": 1, "keys": 1, "schedules": 1}
        assert list_held_chats(erasure) == [(ada["chat"], f"hold {held.hold_id}")]
        assert await kept.log(ada["chat"]) == before
        await people.release(memory, held.hold_id)
        assert people.count(await people.erase(memory, user="ada")) == {"chats": 1}


async def test_erasing_a_tenant_leaves_a_held_user_unchanged(kept: Kept) -> None:
    async with people.furnished(kept, ADA, BOB) as (memory, (ada, bob)):
        for who, ids in ((ADA, ada), (BOB, bob)):
            await people.put_run_webhook(memory, who, ids["run"], "https://hooks.example.com/")
        await people.place_hold(memory, user="bob")
        before = await people.export(memory, BOB)
        erasure = await people.erase(memory, tenant="acme")
        assert (people.count(erasure)["chats"], people.count(erasure)["run_webhooks"]) == (1, 1)
        assert [item.what for item in erasure.kept if item.name == "held_user"] == ["bob"]
        assert await people.export(memory, BOB) == before


async def test_data_that_is_being_erased_cannot_be_held(kept: Kept) -> None:
    async with people.furnished(kept, ADA) as (memory, (ada,)):
        await people.request_erasure(memory, user="ada")
        for wanted in ({"user": "ada"}, {"chat": ada["chat"]}, {"tenant": "acme"}):
            with pytest.raises(Erasing):
                await people.place_hold(memory, **wanted)


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({}, InvalidRequest),
        ({"user": "ada", "tenant": "acme"}, InvalidRequest),
        ({"tenant": "else"}, InvalidRequest),
        ({"user": "ada", "reason": ""}, InvalidRequest),
        ({"chat": "11111111-1111-4111-8111-111111111111"}, NotFound),
    ],
)
async def test_a_hold_must_name_exactly_one_thing_of_the_callers_tenant(
    memory: Memory, wanted: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await people.place_hold(memory, **wanted)


async def test_only_administrators_place_and_release_holds_and_both_are_audited(kept: Kept) -> None:
    async with people.furnished(kept, ADA) as (memory, _):
        with acting_as(ADA), pytest.raises(PermissionDenied):
            await memory.call("PlaceHold", user="ada", reason="mine")
        hold = await people.place_hold(memory, user="ada", request_id="11111111-1111-4111-8111-111111111111")
        assert await people.place_hold(memory, user="ada", request_id="11111111-1111-4111-8111-111111111111") == hold
        other = Identity("else", "op", scopes=ADMIN.scopes)
        with acting_as(other), pytest.raises(NotFound):
            await memory.call("ReleaseHold", hold_id=hold.hold_id)
        assert not await list_holds(memory, other)
        await people.release(memory, hold.hold_id)
        lines = (await memory.call_as(ADMIN, "ListAudit", event="hold")).lines
        records = [json.loads(line.line) for line in lines]
        assert [(record["event"], record["holdId"], record["of"], record["by"]) for record in records] == [
            ("hold.released", hold.hold_id, "ada", "op"),
            ("hold.placed", hold.hold_id, "ada", "op"),
        ]


async def ask_in_shared(memory: Memory, owner: Identity, participant: Identity, chat_id: str) -> None:
    await people.share(memory, owner, chat_id, f"user:{participant.user}")
    await people.ask(memory, participant, people.mark(participant, "shared"), chat_id)


async def test_retention_skips_held_chats_and_chats_with_runs_of_a_held_user(kept: Kept) -> None:
    if not isinstance(kept, Files):
        pytest.skip("the engine is opened by itself, in one process with the service")
    async with people.furnished(kept, ADA, BOB) as (memory, (ada, bob)):
        await ask_in_shared(memory, BOB, ADA, bob["chat"])
        other, _ = await people.ask(memory, BOB, "another")
        await people.place_hold(memory, user="ada")
    async with open_engine(kept) as engine:
        await engine.index.wait_until_complete()
        await asyncio.sleep(0.002)  # a millisecond must be over
        assert await prune_chats(engine, SameForAll(0.0)) == [other]
        assert await engine.index.list_chats() == sorted([ada["chat"], bob["chat"]])


async def test_a_held_users_runs_in_another_users_chat_protect_that_chat(kept: Kept) -> None:
    async with people.furnished(kept, ADA, BOB) as (memory, (ada, _)):
        await ask_in_shared(memory, ADA, BOB, ada["chat"])
        hold = await people.place_hold(memory, user="bob")
        before = await people.export(memory, BOB)
        with acting_as(ADA), pytest.raises(Held) as caught:
            await memory.delete(ada["chat"])
        assert caught.value.metadata["holdId"] == hold.hold_id
        assert "bob" not in caught.value.message
        erasure = await people.request_erasure(memory, user="ada")
        portion = await people.erase_stored(memory, erasure.erasure_id)
        assert [*portion.held_chat_ids] == [ada["chat"]], "whose files stay, too"
        erasure = await people.finish(memory, erasure.erasure_id)
        assert people.count(erasure) == {"facts": 1, "keys": 1, "schedules": 1}
        assert list_held_chats(erasure) == [(ada["chat"], f"hold {hold.hold_id}")]
        assert await people.export(memory, BOB) == before
        await people.release(memory, hold.hold_id)
        assert people.count(await people.erase(memory, user="ada")) == {"chats": 1}


async def test_a_held_chat_with_runs_of_an_erased_user_is_named_in_the_receipt(kept: Kept) -> None:
    async with people.furnished(kept, ADA, BOB) as (memory, (_, bob)):
        await ask_in_shared(memory, BOB, ADA, bob["chat"])
        hold = await people.place_hold(memory, user="bob")
        before = await kept.log(bob["chat"])
        erasure = await people.erase(memory, user="ada")
        assert list_held_chats(erasure) == [(bob["chat"], f"hold {hold.hold_id}")]
        assert await kept.log(bob["chat"]) == before
