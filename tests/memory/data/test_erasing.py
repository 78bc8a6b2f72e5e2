"""Erasing a user or a tenant: nothing of theirs in any byte of the store, everybody else's as it was."""

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


def options_of(kept: Kept) -> dict[str, bool]:
    return {} if isinstance(kept, Files) else {"scrub_rewrites": True}


@pytest.mark.engines("encrypted", "s3", "encrypted s3 postgres")
async def test_no_byte_of_an_erased_user_is_left_and_all_others_are_as_they_were(kept: Kept) -> None:
    async with people.furnished(kept, ADA, BOB, FOREIGN, **options_of(kept)) as (memory, (ada, bob, foreign)):
        await people.take_samples(kept)
        before = {who: await people.export(memory, who) for who in (BOB, FOREIGN)}
        logs = {ids["chat"]: await kept.log(ids["chat"]) for ids in (bob, foreign)}
        assert is_encrypted(kept) or people.find_marks(await people.read_bytes(kept), *people.list_marks(ADA))
        erasure = await people.erase(memory, user="ada", reason="ticket 7")
        assert erasure.state == "done"
        assert people.count(erasure) == {"chats": 1, "facts": 1, "keys": 1, "schedules": 1}
        kept_of = people.name_kept(erasure)
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
    async with kept.memory() as memory:  # nor does a start find anything again
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
async def test_a_participants_runs_are_redacted_and_the_chat_goes_on(kept: Kept) -> None:
    async with people.furnished(kept, ADA, BOB, **options_of(kept)) as (memory, (_, bob)):
        chat_id = bob["chat"]
        await people.share(memory, BOB, chat_id, "user:ada")
        _, ran = await people.ask(memory, ADA, people.mark(ADA, "shared"), chat_id)
        await people.ask(memory, BOB, "and then", chat_id)
        lines = (await kept.log(chat_id)).splitlines()
        erasure = await people.erase(memory, user="ada")
        assert people.count(erasure)["runs_in_others_chats"] == 1
        redacted = (await kept.log(chat_id)).splitlines()
        of_ada = [ran.encode() in line for line in lines]
        assert len(redacted) == len(lines)
        assert not any(people.mark(ADA, "shared").encode() in line for line in redacted)
        assert [old for old, is_hers in zip(lines, of_ada, strict=True) if not is_hers] == [
            new for new, is_hers in zip(redacted, of_ada, strict=True) if not is_hers
        ]
        with acting_as(BOB):
            chat = await memory.chat(chat_id=chat_id)
            asked = [event.request_query for event in chat.events if event.HasField("request_query")]
            assert [query.message for query in asked][1:] == ["[erased]", "asked and then"]
            assert asked[1].by == f"erased-{erasure.erasure_id}"
            query = agent_pb2.QueryRequest(message="next", chat_id=chat_id)
            shown = await memory.context(chat_id, new_id(), pending_query=query)
            texts = [part.text for message in shown for part in message.content]
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
            assert ran in {run.run_id for run in (await memory.tenant_runs()).runs}


async def test_while_a_run_goes_on_in_anothers_chat_blobs_stay_as_their_lines_do(kept: Kept) -> None:
    async with people.furnished(kept, BOB) as (memory, (bob,)):
        chat_id = bob["chat"]
        await people.share(memory, BOB, chat_id, "user:ada")
        blob = await memory.acting_as(ADA).put_blob(chat_id, people.mark(ADA, "blob").encode())
        await people.ask(memory, ADA, f"see {blob}", chat_id)
        _, run_id = await memory.acting_as(BOB).begin("going on", chat_id)
        erasure = await people.request_erasure(memory, user="ada")
        with pytest.raises(ChatBusy):
            await people.work_off(memory, erasure.erasure_id)
        with acting_as(BOB):
            await memory.blob(chat_id, blob)
            await memory.append(chat_id, run_id, run_line())
        await people.work_off(memory, erasure.erasure_id)
        with acting_as(BOB), pytest.raises(NotFound):
            await memory.blob(chat_id, blob)
        assert blob.encode() not in await kept.log(chat_id)


async def test_a_summary_that_may_quote_a_participant_goes_with_their_runs(kept: Kept) -> None:
    async with people.furnished(kept, BOB, **options_of(kept)) as (memory, (bob,)):
        chat_id = bob["chat"]
        await people.share(memory, BOB, chat_id, "user:ada")
        await people.ask(memory, ADA, people.mark(ADA, "shared"), chat_id)
        texts = (await kept.log(chat_id)).splitlines()
        for number in range(8):
            await people.ask(memory, BOB, f"{number} " + "many words " * 400, chat_id)
            await people.ask(
                memory, ADA, people.mark(ADA, "shared"), chat_id
            )  # of which the compaction keeps one word for word
        query_n = 1 + next(n for n, text in enumerate(texts) if people.mark(ADA, "shared").encode() in text)
        with acting_as(BOB), rpc_errors():
            await memory.call("PinMessage", chat_id=chat_id, n=query_n, request_id=new_id())
            _, run_id = await memory.begin("/compact", chat_id)
            compact = memory_pb2.CompactRequest(chat_id=chat_id, run_id=run_id, trigger="manual")
            told = [delta async for delta in memory.stub.Compact(compact)][-1]
            ended = event_line(seq=4, timestamp=1, compaction_fallback=told.fallback)
            await memory.append(chat_id, run_id, ended, run_line())
        assert people.mark(ADA, "shared").encode() in (await kept.log(chat_id)).splitlines()[-2]
        assert b"compact_summary" in await kept.log(chat_id)
        await people.erase(memory, user="ada")
        assert not people.find_marks(await people.read_bytes(kept), *people.list_marks(ADA))
        assert b"compact_summary" not in await kept.log(chat_id)
        await people.ask(memory, BOB, "again", chat_id)


async def test_new_work_of_the_user_is_refused_while_it_goes_on_and_old_runs_may_end(kept: Kept) -> None:
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
                memory.call("CheckErasure"),  # as a service asks that is about to keep something of the caller
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
        assert people.count(await people.work_off(memory, erasure.erasure_id))["chats"] == 2
        await people.furnish(memory, ADA)  # she may come again
        assert "facts.jsonl" in await people.export(memory, ADA)


async def _list_runs(memory: Memory, erasure_id: str) -> list[memory_pb2.UnfinishedRun]:
    while True:
        try:
            return list((await memory.call_as(None, "ListErasedRuns", erasure_id=erasure_id, owner=OWNER)).runs)
        except Overloaded as error:
            await asyncio.sleep(error.retry_after_s or 0.1)


async def test_a_tenant_goes_with_everybody_in_it(kept: Kept) -> None:
    async with people.furnished(kept, ADA, BOB, FOREIGN, **options_of(kept)) as (memory, _):
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


async def test_what_was_spent_stays_under_a_name_of_nobody(kept: Kept) -> None:
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
async def test_whose_data_goes_must_be_said_once(memory: Memory, wanted: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await people.request_erasure(memory, **wanted)
    assert caught.value.metadata["field"] == field


async def test_only_who_may_administer_erases_and_reads_receipts(kept: Kept) -> None:
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


async def test_an_erasure_is_one_workers_at_a_time(memory: Memory) -> None:
    erasure = await people.request_erasure(memory, user="ada")
    assert [one.erasure_id for one in await people.claim(memory, "other")] == [erasure.erasure_id]
    assert not await people.claim(memory)
    with pytest.raises(StaleLease):
        await people.finish(memory, erasure.erasure_id)
    # Who comes back under the same name has forgotten what it had.
    assert [one.erasure_id for one in await people.claim(memory, "other")] == [erasure.erasure_id]


async def test_what_was_done_is_in_the_audit_log(kept: Kept) -> None:
    async with people.furnished(kept, ADA) as (memory, _):
        await people.export(memory, ADMIN, "ada")
        erasure = await people.erase(memory, user="ada", reason="ticket 7")
        with acting_as(ADMIN):
            lines = (await memory.call("ListAudit")).lines
            told = {line.event: json.loads(line.line) for line in lines}
        assert told["data.exported"]["of"] == "ada"
        assert told["user.erased"]["erasureId"] == erasure.erasure_id
        assert (told["user.erased"]["by"], told["user.erased"]["reason"], told["user.erased"]["chats"]) == (
            "op",
            "ticket 7",
            1,
        )
        assert "erasure.requested" in told


async def test_webhooks_and_deliveries_of_chats_that_were_deleted_before_go_too(kept: Kept) -> None:
    url = "https://of-ada.example.com/"
    async with kept.memory(**options_of(kept)) as memory:
        webhook_id = (
            await memory.call_as(ADMIN, "CreateWebhook", url="https://of-the-tenant.example.com/")
        ).webhook.webhook_id
        # Another user, to whom case alone tells.
        ada, other = await people.furnish(memory, ADA), await people.furnish(memory, Identity("acme", "Ada"))
        await people.put_run_webhook(memory, ADA, ada["run"], url)
        await memory.acting_as(ADA).delete(ada["chat"])
        assert is_encrypted(kept) or people.find_marks(await people.read_bytes(kept), url)
        assert await list_told_runs(memory, webhook_id) == {ada["run"], other["run"]}
        erasure = await people.erase(memory, user="ada")
        assert people.count(erasure)["run_webhooks"] == 1
        assert await list_told_runs(memory, webhook_id) == {other["run"]}
        assert not people.find_marks(await people.read_bytes(kept), url, people.mark(ADA, "token"))
        assert people.count(await people.erase(memory, user="ada")) == {}


async def list_told_runs(memory: Memory, webhook_id: str) -> set[str]:
    return {
        delivery.run_id
        for delivery in (await memory.call_as(ADMIN, "ListDeliveries", webhook_id=webhook_id)).deliveries
    }
