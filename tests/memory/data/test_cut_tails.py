"""Log tails that a crash has cut: they were never acknowledged, and their owner is unknown."""

import errno
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from services.runtime.auth.identity import ALL_SCOPES, Identity, acting_as
from services.runtime.randomness import new_uuid
from tests.support.memory import people
from tests.support.memory.encrypted_stores import Store, WithoutTenant, opening
from tests.support.memory.engines import Files, open_keys
from tests.support.memory.people import ADA, BOB, FOREIGN
from tests.support.memory.serving import memory_over
from tests.support.memory.writing import new_id

ELSE_OP = Identity("else", "op", scopes=ALL_SCOPES)


def cut_line(where: str) -> bytes:
    """Return the start of a line of ada's, as a power cut leaves it."""
    return f'{{"_type":"query","query":{{"message":"{people.mark(ADA, where)}'.encode()


async def leave_cut_ends(kept: Files) -> dict[str, str]:
    """Give everybody but ada a chat that ends with a cut line of hers; return the chats."""
    async with people.furnished(kept, BOB, FOREIGN) as (_, (bob, foreign)):
        chats = {"bob": bob["chat"], "foreign": foreign["chat"]}
    for name, chat_id in chats.items():
        with (kept.folder / f"{chat_id}.json").open("ab") as log:
            log.write(cut_line(name))
    return chats


async def test_cut_tails_are_erased_with_the_user_except_in_other_tenants(folder: Path) -> None:
    kept = Files(folder)
    await leave_cut_ends(kept)
    async with kept.memory() as memory:
        assert people.find_marks(await people.read_bytes(kept), people.mark(ADA, "bob"))
        assert (await people.erase(memory, user="ada")).state == "done"
        stored = await people.read_bytes(kept)
        assert not people.find_marks(stored, people.mark(ADA, "bob"))
        assert people.find_marks(stored, people.mark(ADA, "foreign"))


async def test_cut_tails_of_a_chat_on_hold_are_not_erased(folder: Path) -> None:
    kept = Files(folder)
    chats = await leave_cut_ends(kept)
    async with kept.memory() as memory:
        await people.place_hold(memory, chat=chats["bob"], reason="matter")
        assert (await people.erase(memory, user="ada")).state == "done"
        assert people.find_marks(await people.read_bytes(kept), people.mark(ADA, "bob"))


async def test_cut_tails_of_a_chat_whose_key_is_lost_are_not_erased(folder: Path) -> None:
    """The index has no row of the chat, as if it were deleted; but it belongs to another tenant and is on hold."""
    store = Store(Files(folder, open_keys), None)
    async with store.memory() as memory:
        await people.furnish(memory, ADA)
        theirs = await people.furnish(memory, ELSE_OP)
        await memory.call_as(ELSE_OP, "PlaceHold", chat=theirs["chat"], reason="matter")
    foreign_tail = folder / f"{theirs['chat']}.json.damaged"
    foreign_tail.write_bytes(cut_line("foreign"))
    orphan_tail = folder / f"{new_id()}.json.damaged"
    orphan_tail.write_bytes(cut_line("gone"))
    (folder / "index.sqlite").unlink()
    async with store.with_keys(opening(WithoutTenant(ELSE_OP.tenant))).memory() as memory:
        assert (await people.erase(memory, user="ada")).state == "done"
    assert foreign_tail.exists()
    assert not orphan_tail.exists()


async def test_a_damaged_fact_is_erased_with_its_user(folder: Path) -> None:
    """Its owner is known without a key."""
    kept = Files(folder, open_keys)
    async with people.furnished(kept, ADA, BOB):
        pass
    with closing(sqlite3.connect(folder / "records.sqlite")) as database, database:
        database.execute("UPDATE facts SET text = substr(text, 1, 60) || 'AAAA' || substr(text, 65)")
    async with kept.memory() as memory:
        assert "unreadable_facts" not in people.name_kept_items(await people.erase(memory, user="ada"))
    with closing(sqlite3.connect(folder / "records.sqlite")) as database:
        assert {row[0] for row in database.execute("SELECT user_name FROM facts")} == {"bob"}


async def test_a_file_left_unfinished_by_a_crash_is_deleted_at_the_next_start(folder: Path) -> None:
    """A kill leaves such files during a fork, an import, a conversion or a re-encryption."""
    kept = Files(folder)
    async with people.furnished(kept, ADA) as (_, (ada,)):
        pass
    log = (folder / f"{ada['chat']}.json").read_bytes()
    (folder / "spend").mkdir()
    for place in (folder, folder / "spend"):
        (place / f".{new_uuid()}").write_bytes(log)
    (folder / ".keep").write_bytes(b"somebody else's")
    async with kept.memory() as memory:
        with acting_as(BOB):  # whose deleted chat is the first thing that the ledger has
            await memory.delete((await people.ask(memory, BOB, "mine"))[0])
        assert (await people.erase(memory, user="ada")).state == "done"
        assert not people.find_marks(await people.read_bytes(kept), people.mark(ADA, "chat"))
    assert (folder / ".keep").exists()


async def test_an_unfinished_blob_is_erased_unless_it_is_still_being_written(
    folder: Path,
) -> None:
    kept = Files(folder)
    async with people.furnished(kept, BOB) as (memory, (bob,)):
        await people.share(memory, BOB, bob["chat"], "user:ada")
        await people.ask(memory, ADA, people.mark(ADA, "shared"), bob["chat"])
    blobs = folder / "blobs" / bob["chat"]
    abandoned, written = (blobs / f".{new_uuid()}" for _ in range(2))
    abandoned.write_bytes(people.mark(ADA, "blob").encode())
    an_hour_ago_s = time.time() - 3600
    os.utime(abandoned, (an_hour_ago_s, an_hour_ago_s))
    async with kept.memory() as memory:
        written.write_bytes(b"of a call that goes on")
        an_hour_later_s = time.time() + 3600
        os.utime(written, (an_hour_later_s, an_hour_later_s))
        assert (await people.erase(memory, user="ada")).state == "done"
        assert not people.find_marks(
            await people.read_bytes(kept), people.mark(ADA, "blob"), people.mark(ADA, "shared")
        )
    assert written.exists()


async def test_no_receipt_is_issued_before_deletions_are_synced_to_disk(folder: Path) -> None:
    """Found by seed 109 of trials/simulation: a recording's file reappeared after a power cut."""

    def sync_system(fd: int) -> None:
        synced.append((folder / "blobs" / chat_id / blob_id).exists())
        if is_broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    synced: list[bool] = []
    chat_id, blob_id, is_broken = "", "", False
    async with memory_over(folder, sync_system=sync_system) as memory:
        chat_id = (await people.furnish(memory, BOB))["chat"]
        await people.share(memory, BOB, chat_id, "user:ada")
        blob_id = await memory.acting_as(ADA).put_blob(chat_id, people.mark(ADA, "blob").encode())
        await people.ask(memory, ADA, f"{people.mark(ADA, 'shared')} {blob_id}", chat_id)
        erasure = await people.request_erasure(memory, user="ada")
        await people.erase_stored(memory, erasure.erasure_id)
        synced.clear()
        is_broken = True
        with pytest.raises(HeadraceError):
            await people.finish(memory, erasure.erasure_id)
        is_broken = False
        assert (await people.finish(memory, erasure.erasure_id)).state == "done"
    assert synced == [False, False]
