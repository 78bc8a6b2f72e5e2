"""Erasing a user or a tenant: no byte of their data is left in the store, and everybody else's data is unchanged."""

import asyncio
import json

import pytest

from headrace.errors import ChatBusy, Erasing, InvalidRequest, NotFound, Overloaded, PermissionDenied, StaleLease
from headrace.streams import rpc_errors
from headrace.v1 import agent_pb2, memory_pb2
from services.runtime.auth.identity import Identity, acting_as
from tests.support.memory import people
from tests.support.memory.engines import Files, Kept, is_encrypted
from tests.support.memory.messages import content
from tests.support.memory.people import ADA, ADMIN, BOB, FOREIGN, OWNER
from tests.support.memory.writing import Memory, event_line, new_id, run_line, step_line

pytestmark = pytest.mark.engines


def make_options(kept: Kept) -> dict[str, bool]:
    return {} if isinstance(kept, Files) else {"scrub_rewrites": True}


@pytest.mark.engines("encrypted", "s3", "encrypted s3 postgres")
async def test_no_byte_of_an_erased_user_is_left_and_other_users_are_unchanged(kept: Kept) -> None:
    async with people.furnished(kept, ADA, BOB, FOREIGN, **make_options(kept)) as (memory, (ada, bob, foreign)):
        await people.take_samples(kept)
        before = {who: await people.export(memory, who) for who in (BOB, FOREIGN)}
        logs = {ids["chat"]: await kept.log(ids["chat"]) for ids in (bob, foreign)}
        assert is_encrypted(kept) or people.find_marks(await people.read_bytes(kept), *people.list_marks(ADA))
        erasure = await people.erase(memory, user="ada", reason="ticket 7")
        assert erasure.state == "done"
        assert people.count(erasure) == {"chats": 1, "facts": 1, "keys": 1, "schedules": 1}
        kept_of = people.name_kept_items(erasure)
        assert kept_of["revoked_keys"] == "1"
        assert int(kept_of["audit_lines"]) >= 2
        assert kept_of["this_receipt"] == erasure.erasure_id
        assert {who: await people.export(memory, who) for who in (BOB, FOREIGN)} == before
        assert {chat: await kept.log(chat) for chat in logs} == logs
        with acting_as(ADA):
            assert not (await memory.chats()).chats
            assert not await memory.search(people.mark(ADA, "chat"))
            assert not await memory.list_facts()
            with pytest.raises(NotFound):
                await memory.chat(chat_id=ada["chat"])
            with pytest.raises(NotFound):
                await memory.blob(ada["chat"], ada["blob"])
        with acting_as(ADMIN):
            key = (await memory.call("GetKey", key_id=ada["key"])).key
            assert (key.state, key.revoked_by) == ("revoked", "erasure")
        assert not people.find_marks(await people.read_bytes(kept), *people.list_marks(ADA))
    assert not people.find_marks(await people.read_bytes(kept), *people.list_marks(ADA))
    async with kept.memory() as memory:  # a restart brings nothing back either
        assert {who: await people.export(memory, who) for who in (BOB, FOREIGN)} == before


async def test_a_repeated_erasure_has_nothing_left_to_erase(kept: Kept) -> None:
    async with people.furnished(kept, ADA) as (memory, _):
        first = await people.erase(memory, user="ada", request_id="11111111-1111-4111-8111-111111111111")
        assert (
            await people.request_erasure(memory, user="ada", request_id="11111111-1111-4111-8111-111111111111") == first
        )
        second = await people.erase(memory, user="ada")
        assert second.erasure_id != first.erasure_id
        assert people.count(second) == {}


@pytest.mark.engines("encrypted", "encrypted postgres")
async def test_a_participants_runs_are_redacted_and_the_chat_stays_usable(kept: Kept) -> None:
    async with people.furnished(kept, ADA, BOB, **make_options(kept)) as (memory, (_, bob)):
        chat_id = bob["chat"]
        await people.share(memory, BOB, chat_id, "user:ada")
        _, run_id = await people.ask(memory, ADA, people.mark(ADA, "shared"), chat_id)
        await people.ask(memory, BOB, "and then", chat_id)
        lines = (await kept.log(chat_id)).splitlines()
        erasure = await people.erase(memory, user="ada")
        assert people.count(erasure)["runs_in_others_chats"] == 1
        redacted = (await kept.log(chat_id)).splitlines()
        of_ada = [run_id.encode() in line for line in lines]
        assert len(redacted) == len(lines)
        assert not any(people.mark(ADA, "shared").encode() in line for line in redacted)
        assert [old for old, is_hers in zip(lines, of_ada, strict=True) if not is_hers] == [
            new for new, is_hers in zip(redacted, of_ada, strict=True) if not is_hers
        ]
        with acting_as(BOB):
            chat = await memory.chat(chat_id=chat_id)
            queries = [event.request_query for event in chat.events if event.HasField("request_query")]
            assert [query.message for query in queries][1:] == ["[erased]", "asked and then"]
            assert queries[1].by == f"erased-{erasure.erasure_id}"
            query = agent_pb2.QueryRequest(message="next", chat_id=chat_id)
            messages = await memory.context(chat_id, new_id(), pending_query=query)
            texts = [part.text for message in messages for part in message.content]
            assert not any(people.mark(ADA, "shared") in text for text in texts)
            assert texts[-1].endswith("next")
            await people.ask(memory, BOB, "it goes on", chat_id)
        assert not people.find_marks(await people.read_bytes(kept), *people.list_marks(ADA))
    async with kept.memory() as memory:
        with acting_as(BOB):
            chat = await memory.chat(chat_id=chat_id)
            assert len(chat.events) > 4
            assert len(await memory.search("goes on")) == 2
        with acting_as(ADMIN):
            assert not (await memory.tenant_runs(user="ada")).runs
            assert run_id in {run.run_id for run in (await memory.tenant_runs()).runs}


async def test_blobs_in_another_users_chat_stay_until_its_unfinished_run_ends(kept: Kept) -> None:
    async with people.furnished(kept, BOB) as (memory, (bob,)):
        chat_id = bob["chat"]
        await people.share(memory, BOB, chat_id, "user:ada")
        blob = await memory.acting_as(ADA).put_blob(chat_id, people.mark(ADA, "blob").encode())
        await people.ask(memory, ADA, f"see {blob}", chat_id)
        _, run_id = await memory.acting_as(BOB).begin("going on", chat_id)
        erasure = await people.request_erasure(memory, user="ada")
        with pytest.raises(ChatBusy):
            await people.run_erasure(memory, erasure.erasure_id)
        with acting_as(BOB):
            await memory.blob(chat_id, blob)
            await memory.append(chat_id, run_id, run_line())
        await people.run_erasure(memory, erasure.erasure_id)
        with acting_as(BOB), pytest.raises(NotFound):
            await memory.blob(chat_id, blob)
        assert blob.encode() not in await kept.log(chat_id)


async def test_a_summary_that_may_quote_a_participant_is_erased_with_their_runs(kept: Kept) -> None:
    async with people.furnished(kept, BOB, **make_options(kept)) as (memory, (bob,)):
        chat_id = bob["chat"]
        await people.share(memory, BOB, chat_id, "user:ada")
        await people.ask(memory, ADA, people.mark(ADA, "shared"), chat_id)
        texts = (await kept.log(chat_id)).splitlines()
        for number in range(8):
            await people.ask(memory, BOB, f"{number} " + "many words " * 400, chat_id)
            await people.ask(
                memory, ADA, people.mark(ADA, "shared"), chat_id
            )  # the compaction keeps one of them verbatim
        query_n = 1 + next(n for n, text in enumerate(texts) if people.mark(ADA, "shared").encode() in text)
        with acting_as(BOB), rpc_errors():
            await memory.call("PinMessage", chat_id=chat_id, n=query_n, request_id=new_id())
            _, run_id = await memory.begin("/compact", chat_id)
            compact = memory_pb2.CompactRequest(chat_id=chat_id, run_id=run_id, trigger="manual")
            last_delta = [delta async for delta in memory.stub.Compact(compact)][-1]
            ended = event_line(seq=4, timestamp=1, compaction_fallback=last_delta.fallback)
            await memory.append(chat_id, run_id, ended, run_line())
        assert people.mark(ADA, "shared").encode() in (await kept.log(chat_id)).splitlines()[-2]
        assert b"compact_summary" in await kept.log(chat_id)
        await people.erase(memory, user="ada")
        assert not people.find_marks(await people.read_bytes(kept), *people.list_marks(ADA))
        assert b"compact_summary" not in await kept.log(chat_id)
        await people.ask(memory, BOB, "again", chat_id)


async def test_during_an_erasure_new_work_of_the_user_is_refused_and_old_runs_may_end(kept: Kept) -> None:
    async with people.furnished(kept, ADA, BOB) as (memory, (ada, _)):
        chat_id, run_id = await memory.acting_as(ADA).begin("still going")
        erasure = await people.request_erasure(memory, user="ada")
        with acting_as(ADA):
            for refused in (
                memory.begin("new"),
                memory.begin("new", ada["chat"]),
                memory.remember("new"),
                memory.fork(ada["chat"]),
                memory.put_blob(ada["chat"], b"new"),
                memory.update_state(ada["chat"], 0, '{"note":"new"}'),
                memory.call("CheckErasure"),  # a service asks this before it stores something of the caller
            ):
                with pytest.raises(Erasing) as caught:
                    await refused
                assert caught.value.metadata["erasureId"] == erasure.erasure_id
        await people.ask(memory, BOB, "mine goes on")
        [claimed] = await people.claim(memory)
        await memory.acting_as(ADA).append(chat_id, run_id, step_line(content("said")))
        runs = await _list_runs(memory, claimed.erasure_id)
        assert [run.run_id for run in runs] == [run_id]
        with pytest.raises(ChatBusy):
            await people.erase_portion(memory, erasure.erasure_id)
        await memory.acting_as(ADA).append(chat_id, run_id, run_line("cancelled"))
        assert not await _list_runs(memory, claimed.erasure_id)
        assert people.count(await people.run_erasure(memory, erasure.erasure_id))["chats"] == 2
        await people.furnish(memory, ADA)  # she may come again
        assert "facts.jsonl" in await people.export(memory, ADA)


async def _list_runs(memory: Memory, erasure_id: str) -> list[memory_pb2.UnfinishedRun]:
    while True:
        try:
            return list((await memory.call_as(None, "ListErasedRuns", erasure_id=erasure_id, owner=OWNER)).runs)
        except Overloaded as error:
            await asyncio.sleep(error.retry_after_s or 0.1)


async def test_a_tenant_is_erased_with_all_its_users(kept: Kept) -> None:
    async with people.furnished(kept, ADA, BOB, FOREIGN, **make_options(kept)) as (memory, _):
        before = await people.export(memory, FOREIGN)
        of_carl = await memory.call_as(ADMIN, "CreateKey", name="who has nothing else", user="carl", scopes=["ask"])
        erasure = await people.erase(memory, tenant="acme")
        assert people.count(erasure) == {"chats": 2, "facts": 2, "keys": 3, "schedules": 2}
        assert (await memory.call_as(ADMIN, "GetKey", key_id=of_carl.key.key_id)).key.state == "revoked"
        assert await people.export(memory, FOREIGN) == before
        assert not people.find_marks(await people.read_bytes(kept), *people.list_marks(ADA), *people.list_marks(BOB))
        with acting_as(ADMIN):
            usage = await memory.usage(scope="tenant")
            assert usage.total.model_calls == 0


async def test_an_erased_users_spend_is_kept_under_a_pseudonym(kept: Kept) -> None:
    async with people.furnished(kept, ADA, BOB) as (memory, _):
        total = (await memory.acting_as(ADMIN).usage(scope="tenant")).total
        erasure = await people.erase(memory, user="ada")
        with acting_as(ADMIN):
            usage = await memory.usage(group_by=["user"], scope="tenant")
            assert usage.total == total
            assert total.model_calls == 2
            assert {group.user for group in usage.rows} == {"bob", f"erased-{erasure.erasure_id}"}


@pytest.mark.parametrize(
    ("wanted", "field"), [({}, "user"), ({"user": "ada", "tenant": "acme"}, "user"), ({"tenant": "else"}, "tenant")]
)
async def test_an_erasure_must_name_exactly_one_user_or_tenant(
    memory: Memory, wanted: dict[str, str], field: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await people.request_erasure(memory, **wanted)
    assert caught.value.metadata["field"] == field


async def test_only_administrators_erase_data_and_read_receipts(kept: Kept) -> None:
    async with people.furnished(kept, ADA) as (memory, _):
        erasure = await people.request_erasure(memory, user="bob")
        named = {"erasure_id": erasure.erasure_id}
        for rpc, fields in (("EraseData", {"user": "bob"}), ("GetErasure", named), ("ListErasures", {})):
            with pytest.raises(PermissionDenied):
                await memory.call_as(ADA, rpc, **fields)
        other = Identity("else", "op", scopes=ADMIN.scopes)
        with pytest.raises(NotFound):
            await memory.call_as(other, "GetErasure", **named)
        assert not (await memory.call_as(other, "ListErasures")).erasures


async def test_an_erasure_is_claimed_by_one_worker_at_a_time(memory: Memory) -> None:
    erasure = await people.request_erasure(memory, user="ada")
    assert [claimed.erasure_id for claimed in await people.claim(memory, "other")] == [erasure.erasure_id]
    assert not await people.claim(memory)
    with pytest.raises(StaleLease):
        await people.finish(memory, erasure.erasure_id)
    # A worker that restarts under the same name has forgotten its claim, so it may claim again.
    assert [claimed.erasure_id for claimed in await people.claim(memory, "other")] == [erasure.erasure_id]


async def test_exports_and_erasures_are_audited(kept: Kept) -> None:
    async with people.furnished(kept, ADA) as (memory, _):
        await people.export(memory, ADMIN, "ada")
        erasure = await people.erase(memory, user="ada", reason="ticket 7")
        with acting_as(ADMIN):
            lines = (await memory.call("ListAudit")).lines
            records = {line.event: json.loads(line.line) for line in lines}
        assert records["data.exported"]["of"] == "ada"
        assert records["user.erased"]["erasureId"] == erasure.erasure_id
        assert (records["user.erased"]["by"], records["user.erased"]["reason"], records["user.erased"]["chats"]) == (
            "op",
            "ticket 7",
            1,
        )
        assert "erasure.requested" in records


async def test_webhooks_and_deliveries_of_chats_deleted_before_are_erased_too(kept: Kept) -> None:
    url = "https://of-ada.example.com/"
    async with kept.memory(**make_options(kept)) as memory:
        webhook_id = (
            await memory.call_as(ADMIN, "CreateWebhook", url="https://of-the-tenant.example.com/")
        ).webhook.webhook_id
        # Another user, whose name differs only by case.
        ada, other = await people.furnish(memory, ADA), await people.furnish(memory, Identity("acme", "Ada"))
        await people.put_run_webhook(memory, ADA, ada["run"], url)
        await memory.acting_as(ADA).delete(ada["chat"])
        assert is_encrypted(kept) or people.find_marks(await people.read_bytes(kept), url)
        assert await list_delivered_runs(memory, webhook_id) == {ada["run"], other["run"]}
        erasure = await people.erase(memory, user="ada")
        assert people.count(erasure)["run_webhooks"] == 1
        assert await list_delivered_runs(memory, webhook_id) == {other["run"]}
        assert not people.find_marks(await people.read_bytes(kept), url, people.mark(ADA, "token"))
        assert people.count(await people.erase(memory, user="ada")) == {}


async def list_delivered_runs(memory: Memory, webhook_id: str) -> set[str]:
    return {
        delivery.run_id
        for delivery in (await memory.call_as(ADMIN, "ListDeliveries", webhook_id=webhook_id)).deliveries
    }
