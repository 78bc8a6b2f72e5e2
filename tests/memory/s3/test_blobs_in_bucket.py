"""Chats whose blobs are in a bucket: which objects exist, when they are deleted, and blobs stored elsewhere before."""

import asyncio
import hashlib
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import NotFound
from services.memory.data.retention import DAY_S, ORPHAN_AGE_S
from services.memory.encryption.envelope import is_encrypted
from services.memory.storage.encrypted.reencryption import run_pass
from services.runtime.clock import CLOCK
from tests.support.memory.admin_cli import run_program
from tests.support.memory.blobs import BLOB_ID, PNG, make_chat_with_blob
from tests.support.memory.clocks import Later
from tests.support.memory.encrypted_stores import opening
from tests.support.memory.engines import Files, Stored, Tables, open_engine, open_keys
from tests.support.memory.writing import new_id
from tests.support.postgresql import connected, needs_postgres
from tests.support.programs import run_to_end
from tests.support.s3_store import Place, needs_s3

pytestmark = needs_s3


async def test_a_repeated_change_of_a_chat_gets_the_same_reply(kept: Stored) -> None:
    async with kept.memory() as memory:
        chat_id, _ = await memory.begin()
        change = {"chat_id": chat_id, "title": "of boats", "request_id": new_id()}
        assert await memory.call("UpdateChat", **change) == await memory.call("UpdateChat", **change)


async def test_a_blob_is_one_object_and_is_deleted_with_its_chat(kept: Stored, place: Place) -> None:
    async with kept.memory() as memory:
        chat_id, other = await make_chat_with_blob(memory), await make_chat_with_blob(memory)
        copy = await memory.fork(chat_id)
        objects = {f"blobs/{owner_id}/{BLOB_ID}": b"image/png\n" + PNG for owner_id in (chat_id, other, copy)}
        assert await place.read_all() == objects
        await memory.delete(chat_id)
        del objects[f"blobs/{chat_id}/{BLOB_ID}"]
        assert await place.read_all() == objects
    async with kept.memory() as memory:
        assert (await memory.blob(copy, BLOB_ID)).data == PNG
        with pytest.raises(NotFound):
            await memory.blob(chat_id, BLOB_ID)


async def test_a_blob_that_has_changed_is_not_found(kept: Stored, place: Place) -> None:
    async with kept.memory() as memory:
        chat_id = await make_chat_with_blob(memory)
        async with place.open() as bucket:
            await bucket.put(f"blobs/{chat_id}/{BLOB_ID}", b"image/png\nsomething else")
        with pytest.raises(NotFound):
            await memory.blob(chat_id, BLOB_ID)


async def test_verify_checks_the_blobs_in_the_bucket(kept: Stored, place: Place) -> None:
    async with kept.memory() as memory:
        chats = sorted([await make_chat_with_blob(memory), await make_chat_with_blob(memory)])
        assert (await run_admin(kept, "verify"))[0] == 0
        async with place.open() as bucket:
            await bucket.put(f"blobs/{chats[1]}/{BLOB_ID}", b"image/png\nsomething else")
        code, output = await run_admin(kept, "verify")
        (damaged,) = (line for line in output.splitlines() if line.startswith(chats[1]))
        assert (code, damaged) == (1, f"{chats[1]}: blob {BLOB_ID}: its content is not the one of its name")
        assert any(line.endswith(" 1 damaged") for line in output.splitlines())
        assert (await run_admin(kept, "verify", chats[0]))[0] == 0


@needs_postgres
async def test_verify_checks_the_blobs_in_the_database(database_url: str, place: Place) -> None:
    kept = Tables(database_url, place=place)
    async with replace(kept, place=None).memory() as memory:
        chat_id = await make_chat_with_blob(memory)
        assert (await run_admin(kept, "verify"))[0] == 0
        async with connected(database_url) as connection:
            assert await connection.execute("UPDATE blobs SET data = 'x'") == "UPDATE 1"
        code, output = await run_admin(kept, "verify")
        assert (code, f"{chat_id}: blob {BLOB_ID}" in output) == (1, True)


async def test_blobs_without_a_chat_are_deleted_after_a_day(kept: Stored, place: Place) -> None:
    orphan = new_id()
    async with kept.memory() as memory:
        chat_id = await make_chat_with_blob(memory)
        await memory.put_blob(orphan, PNG)
    async with open_engine(kept) as engine:
        assert await engine.blobs.delete_orphans(ORPHAN_AGE_S) == []
        later = CLOCK.set(Later(1.01))
        assert await engine.blobs.delete_orphans(ORPHAN_AGE_S) == [orphan]
        CLOCK.reset(later)
    assert list(await place.read_all()) == [f"blobs/{chat_id}/{BLOB_ID}"]


async def test_blobs_are_encrypted_decrypted_and_rotated_with_their_chats(kept: Stored, place: Place) -> None:
    plain, sealed = kept, replace(kept, open_keys=open_keys)
    async with plain.memory() as memory:
        chat_id = await make_chat_with_blob(memory)
    name = f"blobs/{chat_id}/{BLOB_ID}"
    for opened, is_sealed in ((opening(), True), (opening(encrypts=False), False), (opening(), True)):
        async with open_engine(replace(kept, open_keys=opened)) as engine:
            assert not (await run_pass(engine.rewriting)).failures
            found = (await place.read_all())[name]
            assert (is_encrypted(found), PNG in found) == (is_sealed, not is_sealed)
            assert (await run_pass(engine.rewriting)).rewritten == 0
    async with sealed.memory() as memory:
        assert (await memory.blob(chat_id, BLOB_ID)).data == PNG
        await memory.put_blob(chat_id, b"secret" * 100)
    assert not any(b"secret" in found for found in (await place.read_all()).values())
    async with open_engine(replace(kept, open_keys=opening())) as engine:
        keys, before = engine.rewriting.keys, await place.read_all()
        for tenant in {key.tenant for key in keys.list_keys()}:
            await asyncio.to_thread(keys.rotate, tenant)
        assert not (await run_pass(engine.rewriting)).failures
        after = await place.read_all()
        assert not any(before[key][:40] == after[key][:40] for key in before)
    async with sealed.memory() as memory:
        assert (await memory.blob(chat_id, BLOB_ID)).data == PNG


async def test_blobs_stored_with_the_chats_are_read_there_until_they_are_moved(kept: Stored, place: Place) -> None:
    async with replace(kept, place=None).memory() as memory:
        chat_id = await make_chat_with_blob(memory)
        deleted_id = await make_chat_with_blob(memory)
    async with kept.memory() as memory:
        assert (await memory.blob(chat_id, BLOB_ID)).data == PNG
        copy = await memory.fork(chat_id)
        assert (await memory.blob(copy, BLOB_ID)).data == PNG
        await memory.delete(deleted_id)
    assert await place.read_all() == {}
    assert await run_admin(kept, "move-blobs") == (0, "2 blobs moved\n")
    assert await run_admin(kept, "move-blobs") == (0, "0 blobs moved\n")
    assert sorted(await place.read_all()) == sorted(f"blobs/{owner_id}/{BLOB_ID}" for owner_id in (chat_id, copy))
    async with replace(kept, place=None).memory() as memory:
        with pytest.raises(NotFound):
            await memory.blob(chat_id, BLOB_ID)
    async with kept.memory() as memory:
        assert (await memory.blob(chat_id, BLOB_ID)).data == PNG


async def run_admin(kept: Stored, *arguments: str) -> tuple[int | None, str]:
    assert kept.place is not None
    where = (
        {"HEADRACE_DATABASE_URL": kept.url}
        if isinstance(kept, Tables)
        else {"HEADRACE_MEMORY_CHAT_DIR": str(kept.folder)}
    )
    env = os.environ | kept.place.variables | where
    return await run_program("headrace.cli", "chats", *arguments, env=env)


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.support.memory.serving import memory_over
from tests.support.s3_store import Place
from services.memory.storage.s3.settings import S3Settings

folder, url, endpoint, key, secret, chat_id, data = sys.argv[1:]
place = Place(S3Settings(endpoint_url=endpoint, access_key_id=key, secret_access_key=secret), url)

async def main():
    async with memory_over(Path(folder), place=place) as memory:
        blob_id = await memory.put_blob(chat_id, data.encode())
        print(blob_id, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_a_kill_between_a_blob_and_its_line_leaves_only_an_orphan(folder: Path, place: Place) -> None:
    chat_id, settings = new_id(), place.settings
    words: list[Any] = [folder, place.url, settings.endpoint_url, settings.access_key_id, settings.secret_access_key]
    code, printed, _ = await run_to_end(sys.executable, "-c", KILLED, *map(str, words), chat_id, "a picture")
    blob_id = hashlib.sha256(b"a picture").hexdigest()
    assert (code, printed.decode().split()[-1]) == (-9, blob_id)
    assert list(await place.read_all()) == [f"blobs/{chat_id}/{blob_id}"]
    kept = Files(folder, place=place)
    async with kept.memory() as memory:  # the blob can be read after a restart
        assert (await memory.blob(chat_id, blob_id)).data == b"a picture"
    async with open_engine(kept) as engine:
        later = CLOCK.set(Later(1.01))
        deleted_ids = await engine.blobs.delete_orphans(DAY_S)
        CLOCK.reset(later)
    assert (deleted_ids, await place.read_all()) == ([chat_id], {})
