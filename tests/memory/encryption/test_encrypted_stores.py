"""What an encrypted store reveals to somebody who has its bytes, and to its users when keys or bytes have changed.

Real services over real folders and a real PostgreSQL, with master keys made for these tests.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import KeyUnavailable, LogDamaged
from services.memory.log.lines import add_checksum, remove_checksum
from services.runtime.auth.identity import acting_as
from tests.support.memory.encrypted_stores import (
    ADA,
    BOB,
    OTHER_MASTER_KEYS,
    Store,
    WithoutTenant,
    opening,
    read_everything,
    write_everything,
)
from tests.support.memory.engines import Files, open_keys
from tests.support.memory.writing import Memory, new_id, query_line, run_line

ADMIN = replace(ADA, scopes=ADA.scopes | {"admin"})

MARKER = "zq" + new_id().replace("-", "")


async def test_no_content_is_in_any_byte_of_the_store(store: Store) -> None:
    async with store.memory() as memory:
        chat_id = await write_everything(memory, MARKER)
        content = await read_everything(memory, chat_id, MARKER)
        assert content["chats"] == [f"About {MARKER}"] * 2
        assert len(content["hits"]) >= 3
        assert await store.find_bytes(MARKER.encode()) == []
    assert await store.find_bytes(MARKER.encode()) == []
    assert await store.find_bytes(chat_id.encode()) or not store.postgres, "the right bytes were looked at"
    async with store.memory() as memory:
        assert await read_everything(memory, chat_id, MARKER) == content


async def test_the_same_content_is_found_without_encryption(store: Store) -> None:
    """Proves that the previous test would find the content."""
    marker = "plain" + new_id().replace("-", "")
    plain = store.with_keys(opening(encrypts=False))
    async with plain.memory() as memory:
        await write_everything(memory, marker)
    assert await store.find_bytes(marker.encode())


@pytest.mark.parametrize("lose", ["keys", "master keys"])
async def test_a_tenant_whose_key_is_lost_is_refused_and_others_are_served(store: Store, lose: str) -> None:
    async with store.memory() as memory:
        chats = {who: await write_everything(memory, "secret words", who) for who in (ADA, BOB)}
        content = await read_everything(memory, chats[BOB], "secret", BOB)
    if lose == "keys":
        await store.delete_keys("acme")
    else:
        store = store.with_keys(opening(WithoutTenant("acme")))
    async with store.memory() as memory:
        await _check_refused(memory, chats[ADA], may_write=lose == "keys")
        content["agents"] = content["agents"][:1]
        assert await read_everything(memory, chats[BOB], "secret", BOB) == content
        with acting_as(BOB):
            run_id = new_id()
            await memory.append(chats[BOB], run_id, query_line("goes on"))
            await memory.append(chats[BOB], run_id, run_line())
    async with store.with_keys(open_keys).memory() as memory:
        if lose == "master keys":
            assert "secret words" in str(await memory.acting_as(ADA).chat(chat_id=chats[ADA])), "the key is there again"


async def _check_refused(memory: Memory, chat_id: str, *, may_write: bool) -> None:
    """With `may_write` a new key is made for the first new chat, because the loss of the old one is not known."""
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: memory.chat(chat_id=chat_id),
        lambda: memory.append(chat_id, new_id(), query_line("more")),
        lambda: memory.search("secret"),
        memory.chats,
        memory.list_facts,
        lambda: memory.call_as(ADMIN, "ListWebhooks"),
    ]
    if not may_write:
        calls.append(lambda: memory.append(new_id(), new_id(), query_line()))
    for call in calls:
        with acting_as(ADA), pytest.raises(KeyUnavailable) as caught:
            await call()
        assert not caught.value.retriable


async def test_another_master_key_of_the_same_name_opens_nothing(store: Store) -> None:
    async with store.memory() as memory:
        chat_id = await write_everything(memory, "secret words")
    async with store.with_keys(opening(OTHER_MASTER_KEYS)).memory() as memory:
        with acting_as(ADA), pytest.raises(KeyUnavailable, match="another than the one that wrapped"):
            await memory.chat(chat_id=chat_id)
    async with store.memory() as memory:
        assert "secret words" in str(await memory.acting_as(ADA).chat(chat_id=chat_id))


def _swap_bytes(line: bytes) -> bytes:
    """Change one letter of the ciphertext, with a checksum that fits."""
    text = bytearray(remove_checksum(line))
    text[-20] = ord("A") if text[-20] != ord("A") else ord("B")
    return add_checksum(bytes(text))


def _cut(line: bytes) -> bytes:
    text = remove_checksum(line)
    return add_checksum(text[:-42] + b'"}')


def _renumber(line: bytes) -> bytes:
    return add_checksum(re.sub(rb'"_n":\d+', b'"_n":2', remove_checksum(line)))


@pytest.mark.parametrize("tamper", [_swap_bytes, _cut, _renumber])
async def test_a_line_that_was_tampered_with_is_reported_as_damage(
    store: Store, tamper: Callable[[bytes], bytes]
) -> None:
    with acting_as(ADA):
        async with store.memory() as memory:
            chat_id, _ = await memory.begin_and_end("first")
            await memory.begin_and_end("second", chat_id)
            whole = await memory.begin_and_end("another chat")
        lines = await store.read_lines(chat_id)
        await store.write_line(chat_id, 3, tamper(lines[2]))
        async with store.memory() as memory:
            assert "first" in str(await memory.chat(chat_id=chat_id))
            with pytest.raises(LogDamaged):
                await memory.begin("third", chat_id)
            await memory.begin_and_end("goes on", whole[0])


async def test_lines_are_valid_only_in_their_own_places(store: Store) -> None:
    """Two lines of a chat are swapped, and one is replaced by a line of another chat of the same tenant."""
    with acting_as(ADA):
        async with store.memory() as memory:
            chats = [(await memory.begin_and_end("here"))[0] for _ in range(2)]
            for chat_id in chats:
                await memory.begin_and_end("there", chat_id)
        lines, other_lines = [await store.read_lines(chat_id) for chat_id in chats]
        await store.write_line(chats[0], 1, lines[2])
        await store.write_line(chats[0], 3, lines[0])
        await store.write_line(chats[1], 3, lines[2])
        assert other_lines[2] != lines[2]
        async with store.memory() as memory:
            for chat_id in chats:
                with pytest.raises(LogDamaged):
                    await memory.begin("more", chat_id)


async def test_an_append_cut_by_a_crash_is_set_aside(folder: Path) -> None:
    """It is cut anywhere, or its blocks never reached the disk."""
    store = Store(Files(folder, open_keys), None)
    with acting_as(ADA):
        async with store.memory() as memory:
            chat_id, _ = await memory.begin_and_end("whole")
        path = folder / f"{chat_id}.json"
        whole = path.read_bytes()
        async with store.memory() as memory:
            await memory.begin("cut", chat_id)
        last = path.read_bytes()[len(whole) :]
        ends = [last[:length] for length in (1, 8, 40, len(last) // 2, len(last) - 1)]
        for end in (*ends, last[:30] + b"\0" * (len(last) - 30), b"\0" * len(last)):
            path.write_bytes(whole + end)
            async with store.memory() as memory:
                text = str(await memory.chat(chat_id=chat_id))
                assert ("whole" in text, "cut" in text) == (True, False)
                await memory.begin_and_end("goes on", chat_id)
            path.write_bytes(whole)
