"""Exports and erasures of a store that is encrypted: as of any other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.runtime.auth.identity import acting_as
from tests.support.memory.engines import Files, Kept, Tables, open_keys
from tests.support.memory.people import ADA, BOB, ask, count, erase, export, furnished, mark, share

pytestmark = pytest.mark.engines


@pytest.mark.engines("encrypted", "encrypted s3 postgres")
async def test_an_encrypted_store_is_exported_in_clear_and_erased(kept: Kept) -> None:
    assert isinstance(kept, Files | Tables)
    kept = replace(kept, open_keys=open_keys)
    async with furnished(kept, ADA, BOB) as (memory, (ada, bob)):
        chat_id = bob["chat"]
        await share(memory, BOB, chat_id, "user:ada")
        await ask(memory, ADA, mark(ADA, "shared"), chat_id)
        entries = await export(memory, ADA)
        assert mark(ADA, "chat").encode() in entries[f"chats/{ada['chat']}.json"]
        assert entries[f"chats/{ada['chat']}/{ada['blob']}"] == mark(ADA, "blob").encode()
        assert mark(ADA, "fact").encode() in entries["facts.jsonl"]
        assert mark(ADA, "shared").encode() in entries[f"others_chats/{chat_id}.json"]
        erasure = await erase(memory, user="ada")
        assert count(erasure) == {"chats": 1, "facts": 1, "keys": 1, "runs_in_others_chats": 1, "schedules": 1}
        assert mark(ADA, "shared").encode() not in await kept.log(chat_id)
        await ask(memory, BOB, "it goes on", chat_id)
    async with kept.memory() as memory:
        with acting_as(BOB):
            asked = [event.request_query for event in (await memory.chat(chat_id=chat_id)).events]
            assert "[erased]" in [query.message for query in asked]
            assert len(await memory.list_facts()) == 1
        with acting_as(ADA):
            assert not await memory.list_facts()
