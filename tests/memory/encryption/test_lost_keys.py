"""A tenant whose key is lost: its data can be deleted, erased and held without being read.

Its webhooks wait and can be deleted; those of others are delivered.
"""

import asyncio
from pathlib import Path

import pytest

from headrace.errors import ChatBusy, Held, KeyUnavailable, NotFound, Overloaded
from services.memory.data.retention import SameForAll, prune_chats
from services.memory.storage.engine import Engine
from services.memory.storage.event_rows import RUN_ENDED, make_event
from services.memory.webhooks.deliverer import delivering
from services.memory.webhooks.sender import Answer
from services.memory.webhooks.store import WebhookStore
from services.runtime.auth.identity import ALL_SCOPES, Identity, acting_as
from services.runtime.clock import now_ms
from services.runtime.net.allow_list import AllowList
from tests.support.memory import people
from tests.support.memory.encrypted_stores import Store, WithoutTenant, opening, write_everything
from tests.support.memory.engines import Files, open_engine, open_keys
from tests.support.memory.people import ADMIN, BOB
from tests.support.memory.writing import Memory, new_id

ADA = Identity("acme", "ada", scopes=ALL_SCOPES)
OTHER = Identity("bolt", "bob", scopes=ALL_SCOPES)


@pytest.fixture(params=["keys", "master keys"])
def lose(request: pytest.FixtureRequest) -> str:
    return request.param


async def lose_key(store: Store, lose: str) -> Store:
    if lose == "keys":
        await store.delete_keys("acme")
        return store
    return store.with_keys(opening(WithoutTenant("acme")))


async def test_the_owner_can_delete_a_chat_whose_key_is_lost(store: Store, lose: str) -> None:
    async with store.memory() as memory:
        chat_id, other = await write_everything(memory, "words", ADA), await write_everything(memory, "words", OTHER)
        with acting_as(ADMIN):
            spend_chat = (await people.ask(memory, BOB, "costs"))[0]
            before = await sum_spend(memory)
    store = await lose_key(store, lose)
    async with store.memory() as memory:
        with acting_as(BOB), pytest.raises(NotFound):
            await memory.delete(chat_id)
        with acting_as(ADA):
            await memory.delete(chat_id)
            with pytest.raises(NotFound):
                await memory.delete(chat_id)
        await memory.acting_as(BOB).delete(spend_chat)
        with acting_as(ADMIN):
            assert await sum_spend(memory) == before, "what was spent stays"
        with acting_as(OTHER):
            assert "words" in str(await memory.chat(chat_id=other))
    if isinstance(store.kept, Files):
        assert not find_paths(store, chat_id)
        (store.kept.folder / "index.sqlite").unlink()
        async with store.memory() as memory:
            with acting_as(ADMIN):
                assert await sum_spend(memory) == before, "also where the index is made anew"
    else:
        assert not await store.run("SELECT FROM blobs WHERE chat_id = $1", chat_id)


def find_paths(store: Store, name: str) -> list[Path]:
    assert isinstance(store.kept, Files)
    return list(store.kept.folder.rglob(f"*{name}*"))


async def sum_spend(memory: Memory) -> int:
    return (await memory.usage(scope="tenant")).total.model_calls


async def test_a_chat_with_a_leased_run_cannot_be_deleted_until_the_lease_ends(store: Store) -> None:
    now = [1_800_000_000_000]
    async with store.memory(clock=lambda: now[0]) as memory:
        with acting_as(ADA):
            chat_id, run_id = await memory.begin("goes on")
            await memory.acquire(chat_id, run_id, "worker", ttl_ms=10_000)
    store = await lose_key(store, "master keys")
    async with store.memory(clock=lambda: now[0]) as memory:
        with acting_as(ADA):
            with pytest.raises(ChatBusy):
                await memory.delete(chat_id)
            now[0] += 10_001
            await memory.delete(chat_id)


async def test_a_user_and_a_tenant_are_erased_without_reading_their_data(store: Store, lose: str) -> None:
    async with store.memory() as memory:
        ada, bob = [await people.furnish(memory, who) for who in (ADA, BOB)]
        await people.share(memory, BOB, bob["chat"], "user:ada")
        await people.ask(memory, ADA, "shared", bob["chat"])
        other = await write_everything(memory, "words", OTHER)
        await memory.acting_as(ADA).begin("has not ended")
    store = await lose_key(store, lose)
    async with store.memory() as memory:
        erasure = await people.erase(memory, user="ada", reason="ticket 9")
        assert erasure.state == "done"
        assert people.count(erasure)["chats"] == 2
        kept = people.name_kept_items(erasure)
        assert kept["unreadable_chat"] == bob["chat"], "her run in it cannot be redacted"
        # Columns name the owner of the rest.
        assert people.count(erasure) == {"chats": 2, "facts": 1, "keys": 1, "schedules": 1}
        assert "unreadable_facts" not in kept
        with acting_as(BOB), pytest.raises(KeyUnavailable):
            await memory.chat(chat_id=bob["chat"])
        erasure = await people.erase(memory, tenant="acme")
        assert erasure.state == "done"
        assert people.count(erasure)["chats"] == 1
        assert not {name for name in people.name_kept_items(erasure) if name.startswith("unreadable")}
        assert people.count(await people.erase(memory, tenant="acme")) == {}, "nothing is left"
        with acting_as(OTHER):
            assert "words" in str(await memory.chat(chat_id=other))
            assert len(await memory.list_facts()) == 1
    if isinstance(store.kept, Files):
        assert not [path for ids in (ada, bob) for path in find_paths(store, ids["chat"])]
    async with store.memory() as memory:
        assert people.count(await people.erase(memory, tenant="acme")) == {}


async def test_a_tenants_agents_and_webhooks_are_erased_without_reading_them(store: Store, lose: str) -> None:
    async with store.memory() as memory:
        await write_everything(memory, "words", ADA)
    store = await lose_key(store, lose)
    async with store.memory() as memory:
        erased = people.count(await people.erase(memory, tenant="acme"))
        assert erased["agents"] == 1
        assert erased["agent_versions"] >= 1
        assert erased["webhooks"] == 1
        assert erased["run_webhooks"] == 1
    async with store.with_keys(opening()).memory() as memory:
        with acting_as(ADA):  # the tenant may begin anew
            assert people.count(await people.erase(memory, tenant="acme")) == {}
            await memory.begin_and_end("new")


async def test_holds_protect_data_that_cannot_be_read(store: Store) -> None:
    async with store.memory() as memory:
        ada = await people.furnish(memory, ADA)
        chat_id = (await people.ask(memory, ADA, "another"))[0]
    store = await lose_key(store, "master keys")
    async with store.memory() as memory:
        hold = await people.place_hold(memory, chat=chat_id)
        with acting_as(ADA), pytest.raises(Held):
            await memory.delete(chat_id)
        erasure = await people.erase(memory, tenant="acme")
        assert people.name_kept_items(erasure)["held_chat"] == chat_id
        with acting_as(ADA), pytest.raises(NotFound):
            await memory.delete(ada["chat"])
        await people.release(memory, hold.hold_id)
        held = await people.place_hold(memory, user="ada")
        with pytest.raises(Held):
            await people.request_erasure(memory, user="ada")
        with acting_as(ADA), pytest.raises(Held):
            await memory.delete(chat_id)
        await people.release(memory, held.hold_id)
        assert people.count(await people.erase(memory, user="ada"))["chats"] == 1


async def test_retention_deletes_chats_that_cannot_be_read(store: Store) -> None:
    async with store.memory() as memory:
        chat_id = (await people.ask(memory, ADA, "old"))[0]
    store = await lose_key(store, "keys")
    async with open_engine(store.kept) as engine:
        assert await prune_chats(engine, SameForAll(-1.0)) == [chat_id]


async def test_logs_without_an_index_and_a_key_are_erased_with_their_tenant(folder: Path, lose: str) -> None:
    """Only the key would reveal their owner; in a database chats have their rows."""
    store = Store(Files(folder, open_keys), None)
    async with store.memory() as memory:
        ada = await people.furnish(memory, ADA)
        matter = (await people.ask(memory, ADA, "of a matter"))[0]
        hold = await people.place_hold(memory, chat=matter)
        other = await write_everything(memory, "words", OTHER)
    (folder / "index.sqlite").unlink()
    store = await lose_key(store, lose)
    async with store.memory() as memory:
        erasure = await people.erase(memory, user="ada")
        assert people.name_kept_items(erasure)["unreadable_chats"] == "1"
        assert people.name_kept_items(erasure)["held_chat"] == matter
        held = await people.place_hold(memory, user="bob")
        kept = people.name_kept_items(await people.erase(memory, tenant="acme"))
        assert kept["unreadable_chats"] == "1", "it may be of the user who is held"
        await people.release(memory, held.hold_id)
        erasure = await people.erase(memory, tenant="acme")
        assert (people.count(erasure)["chats"], people.name_kept_items(erasure)["held_chat"]) == (1, matter)
        await people.release(memory, hold.hold_id)
        assert people.count(await people.erase(memory, tenant="acme"))["chats"] == 1
        with acting_as(OTHER):
            assert "words" in str(await memory.chat(chat_id=other))
    assert not find_paths(store, ada["chat"])


class SilentKeys(WithoutTenant):
    """Master keys of a key service that does not answer for one tenant."""

    def unwrap(self, tenant: str, wrapped: bytes) -> bytes:
        if tenant == self.lost:
            raise Overloaded("it does not answer")
        return super().unwrap(tenant, wrapped)


async def test_an_erasure_waits_for_a_key_service_that_does_not_answer(store: Store) -> None:
    """The key may be available again in a moment, and what it opens must be redacted."""
    async with store.memory() as memory:
        bob = await people.furnish(memory, BOB)
        await people.share(memory, BOB, bob["chat"], "user:ada")
        await people.ask(memory, ADA, "shared", bob["chat"])
    async with store.with_keys(opening(SilentKeys("acme"))).memory() as memory, asyncio.timeout(60):
        erasure_id = (await people.request_erasure(memory, user="ada")).erasure_id
        await people.claim(memory)
        while True:
            with pytest.raises(Overloaded) as caught:
                await people.erase_portion(memory, erasure_id)
            if "known everywhere" not in caught.value.message:
                break
            await asyncio.sleep(caught.value.retry_after_s or 0.1)
    async with store.memory() as memory:
        erasure = await people.run_erasure(memory, erasure_id)
        assert people.count(erasure) == {"runs_in_others_chats": 1}
        assert "unreadable_chat" not in people.name_kept_items(erasure)


ACME, BOLT = (Identity(tenant, "admin", scopes=ALL_SCOPES) for tenant in ("acme", "bolt"))


async def _create(engine: Engine, who: Identity) -> str:
    with acting_as(who):
        webhook, _ = await WebhookStore(engine.records.webhooks, AllowList()).create(f"https://{who.tenant}.example/")
        return webhook.webhook_id


async def test_a_lost_key_delays_only_the_webhooks_of_its_own_tenant(store: Store) -> None:
    urls: asyncio.Queue[str] = asyncio.Queue()

    async def send(url: str, headers: dict[str, str], body: bytes) -> Answer:
        urls.put_nowait(url)
        return Answer(200)

    async with open_engine(store.kept) as engine:
        webhook_id, _ = await _create(engine, ACME), await _create(engine, BOLT)
        for who in (ACME, BOLT):
            await engine.records.webhooks.add_event(make_event(who.tenant, RUN_ENDED, "1", new_id(), now_ms(), {}))
    lost = store.with_keys(opening(WithoutTenant("acme")))
    async with (
        asyncio.timeout(60),
        open_engine(lost.kept) as engine,
        delivering(engine.records.webhooks, send, look_s=0.05),
    ):
        assert await urls.get() == "https://bolt.example/"
        with acting_as(ACME), pytest.raises(KeyUnavailable, match="acme"):
            await WebhookStore(engine.records.webhooks, AllowList()).get(webhook_id)
        await engine.records.webhooks.add_event(make_event("bolt", RUN_ENDED, "2", new_id(), now_ms(), {}))
        assert await urls.get() == "https://bolt.example/"
    async with (
        asyncio.timeout(60),
        open_engine(store.kept) as engine,
        delivering(engine.records.webhooks, send, look_s=0.05),
    ):
        assert await urls.get() == "https://acme.example/", "with the key there again it is told"
    async with open_engine(lost.kept) as engine:
        with acting_as(ACME):
            await WebhookStore(engine.records.webhooks, AllowList()).delete(webhook_id)
        assert await engine.records.webhooks.list_ids("acme") == []
