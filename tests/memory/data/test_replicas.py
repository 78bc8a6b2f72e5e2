"""Two services over one database: what one begins to erase the other refuses, and what one redacts the other shows."""

from __future__ import annotations

import asyncio

import pytest

from headrace.errors import Erasing, NotFound
from services.runtime.auth.identity import acting_as
from tests.memory.conftest import memory_in, needs_postgres
from tests.memory.data.people import ADA, BOB, ask, furnish, mark, request_erasure, share, work_off

pytestmark = needs_postgres

REFUSED_WITHIN_S = 30.0
"""It is a second or two; the machine may be busy."""


async def test_what_one_service_erases_the_other_neither_takes_nor_shows(database_url: str) -> None:
    async with memory_in(database_url) as one, memory_in(database_url, tells=False) as other:
        ada, bob = await furnish(one, ADA), await furnish(one, BOB)
        await share(one, BOB, bob["chat"], "user:ada")
        await ask(other, ADA, mark(ADA, "shared"), bob["chat"])
        with acting_as(ADA):
            await other.chat(chat_id=ada["chat"])  # it has both chats at hand now
        erasure = await request_erasure(one, user="ada")
        async with asyncio.timeout(REFUSED_WITHIN_S):
            with acting_as(ADA):
                while True:
                    try:
                        await other.remember("more")
                    except Erasing:
                        break
                    await asyncio.sleep(0.05)
        await work_off(one, erasure.erasure_id)
        with acting_as(ADA):
            with pytest.raises(NotFound):
                await other.chat(chat_id=ada["chat"])
            assert not await other.list_facts()
        with acting_as(BOB):
            chat = await other.chat(chat_id=bob["chat"])
            said = chat.SerializeToString()
            assert b"[erased]" in said
            assert mark(ADA, "shared").encode() not in said
            await ask(other, BOB, "it goes on", bob["chat"])
