"""A participant's fork stays with the participant when the chat's owner is erased, without the owner's words."""

import pytest

from services.runtime.auth.identity import acting_as
from tests.support.memory.engines import Files, Kept
from tests.support.memory.people import ADA, BOB, ask, erase, find_marks, furnished, mark, read_bytes, share
from tests.support.memory.writing import new_id

pytestmark = pytest.mark.engines


async def test_a_participants_fork_survives_the_erasure_of_the_first_owner(kept: Kept) -> None:
    async with furnished(kept, ADA, BOB) as (memory, (ada, _)):
        await share(memory, ADA, ada["chat"], "user:bob")
        fork = await memory.acting_as(BOB).fork(ada["chat"])
        await ask(memory, BOB, "mine", fork)
        erasure = await erase(memory, user="ada")
        with acting_as(BOB):
            assert fork in {chat.chat_id for chat in (await memory.chats()).chats}
            chat = await memory.chat(chat_id=fork)
            queries = [event.request_query for event in chat.events if event.HasField("request_query")]
            assert [query.message for query in queries] == ["[erased]", "asked mine"]
            assert queries[0].by == f"erased-{erasure.erasure_id}"
        await ask(memory, BOB, "it goes on", fork)


async def test_the_title_pins_and_state_of_an_erased_owner_are_removed_from_a_participants_fork(kept: Kept) -> None:
    words = mark(ADA, "title"), mark(ADA, "state"), mark(ADA, "chat")
    options = {} if isinstance(kept, Files) else {"scrub_rewrites": True}
    async with furnished(kept, ADA, BOB, **options) as (memory, (ada, _)):
        chat_id = ada["chat"]
        await share(memory, ADA, chat_id, "user:bob")
        with acting_as(ADA):
            await memory.call("UpdateChat", chat_id=chat_id, title=words[0], request_id=new_id())
            await memory.update_state(chat_id, 0, f'{{"note":"{words[1]}"}}')
            await memory.call("PinMessage", chat_id=chat_id, n=1, request_id=new_id())
        with acting_as(BOB):
            fork = await memory.fork(chat_id)
            await memory.update_state(fork, 1, '{"own":"his"}')
        await erase(memory, user="ada")
        assert not find_marks(await read_bytes(kept), *words)
        assert b'"_user":"ada"' not in await kept.log(fork)
        with acting_as(BOB):
            assert {chat.title for chat in (await memory.chats()).chats if chat.chat_id == fork} == {"[erased]"}
            await memory.update_state(fork, 2, '{"own":"again"}')  # versions of the state are as they were
    async with kept.memory() as memory:
        await memory.acting_as(BOB).chat(chat_id=fork)
