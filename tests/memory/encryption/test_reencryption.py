"""Encryption is switched on and off over a store with chats; keys are rotated while it is served and commands are
killed.

The commands are processes, as an operator runs them.
"""

import asyncio
import json
import signal
import sys

import pytest

from services.memory.encryption.envelope import find_key_id, is_encrypted_line
from services.memory.encryption.keyring import Keyring
from services.memory.encryption.master_keys import FileMasterKeys
from services.memory.storage.encrypted.reencryption import run_pass
from services.memory.storage.files.data_keys import FOLDER, FileDataKeys
from services.runtime.auth.identity import acting_as
from tests.support.memory.admin_cli import run_command as run
from tests.support.memory.encrypted_stores import ADA, BOB, Store, opening, read_everything, write_everything
from tests.support.memory.engines import Files, Tables, open_engine
from tests.support.memory.writing import new_id


async def find_in_tables(store: Store, marker: str) -> list[str]:
    """Return the files that contain a marker, apart from deleted rows and the write-ahead log of a database."""
    if isinstance(store.kept, Tables):
        await store.run("VACUUM FULL")
    return [name for name in await store.find_bytes(marker.encode()) if not name.startswith("pg_wal")]


async def test_a_plain_store_is_encrypted_by_a_command_and_decrypted_again(store: Store, env: dict[str, str]) -> None:
    marker = "zq" + new_id().replace("-", "")
    plain = store.with_keys(opening(encrypts=False))
    async with plain.memory() as memory:
        chat_id = await write_everything(memory, marker)
        content = await read_everything(memory, chat_id, marker)
    async with store.memory() as memory:
        assert await read_everything(memory, chat_id, marker) == content, "what is in plain text is read"
        await write_everything(memory, "bob's", BOB)
    assert await find_in_tables(store, marker)
    assert "none left" in await run(env, "reencrypt")
    assert await find_in_tables(store, marker) == []
    assert ", 0 written anew, none left" in await run(env, "reencrypt")
    await run(env, "verify")
    async with store.memory() as memory:
        assert await read_everything(memory, chat_id, marker) | {"agents": []} == content | {"agents": []}

    off = env | {"HEADRACE_MEMORY_ENCRYPTION_ENABLED": "false"}
    assert "none left" in await run(off, "reencrypt")
    assert not any(map(is_encrypted_line, await store.read_lines(chat_id)))
    without = {key: value for key, value in env.items() if "ENCRYPTION" not in key}
    assert "none damaged" in await run(without, "verify")
    async with plain.memory() as memory:
        assert await read_everything(memory, chat_id, marker) | {"agents": []} == content | {"agents": []}


async def test_keys_are_rotated_while_the_store_is_served(store: Store, env: dict[str, str]) -> None:
    async with store.memory() as memory:
        chat_id = await write_everything(memory, "secret words")
        other = await write_everything(memory, "bob's words", BOB)
        content = await read_everything(memory, chat_id, "secret")
        first = {find_key_id(line) for line in await store.read_lines(chat_id)}
        others = await store.read_lines(other)
        assert await run(env, "rotate-keys", "--tenant", "acme") == "acme: version 2\n"
        async with asyncio.timeout(120):
            while first & {find_key_id(line) for line in await store.read_lines(chat_id)}:
                await memory.acting_as(ADA).begin_and_end("more")
                await asyncio.sleep(0.5)
            while "all that is stored is encrypted" not in await run(env, "keys"):
                await asyncio.sleep(0.5)
        again = await read_everything(memory, chat_id, "secret")
        assert again | {"chats": [], "hits": []} == content | {"chats": [], "hits": []}
        assert await store.read_lines(other) == others, "another tenant's chats are left alone"
        table = (await run(env, "keys")).splitlines()
        assert table[0].split() == ["tenant", "version", "created", "kept"]
        assert ["acme", "2"] in [line.split()[:2] for line in table]
        [acme] = [line for line in (await run(env, "keys", "--json")).splitlines() if '"tenant": "acme"' in line]
        assert json.loads(acme)["version"] == 2
    async with store.memory() as memory:
        again = await read_everything(memory, chat_id, "secret")
        assert again | {"chats": [], "hits": []} == content | {"chats": [], "hits": []}


@pytest.mark.parametrize("kill_after_s", [0.0, 0.1, 0.3])
async def test_a_killed_reencryption_loses_nothing_and_is_resumed(
    store: Store, env: dict[str, str], kill_after_s: float
) -> None:
    with acting_as(ADA):
        async with store.memory() as memory:
            chats = [(await memory.begin_and_end(f"words of {number}"))[0] for number in range(60)]
            picture = await memory.put_blob(chats[0], b"picture" * 1000)
        await run(env, "rotate-keys")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "services.memory.admin_cli", "reencrypt"), env=env, stdout=asyncio.subprocess.PIPE
        )
        before = await store.read_lines(chats[0])
        async with asyncio.timeout(60):
            while process.returncode is None and await store.read_lines(chats[0]) == before:
                await asyncio.sleep(0.005)
        await asyncio.sleep(kill_after_s)
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.communicate()
        async with store.memory() as memory:
            for number, chat_id in enumerate(chats):
                assert f"words of {number}" in str(await memory.chat(chat_id=chat_id))
            assert (await memory.blob(chats[0], picture)).data == b"picture" * 1000
        assert "none left" in await run(env, "reencrypt")
        keys = {find_key_id(line) for chat_id in chats for line in await store.read_lines(chat_id)}
        assert len(keys) == 1
        await run(env, "verify")


async def test_unreadable_chats_are_left_unchanged_and_named(store: Store, env: dict[str, str]) -> None:
    async with store.memory() as memory:
        chats = {who: await write_everything(memory, "words", who) for who in (ADA, BOB)}
    before = await store.read_lines(chats[ADA])
    await store.delete_keys("acme")
    await run(env, "rotate-keys", "--tenant", "bolt")
    printed = await run(env, "reencrypt", status=1)
    assert f"chat {chats[ADA]}: " in printed
    assert "is not stored any more" in printed
    assert await store.read_lines(chats[ADA]) == before
    printed = await run(env, "verify", status=1)
    assert f"{chats[ADA]}: " in printed
    assert chats[BOB] not in printed


async def test_rotating_the_key_of_a_tenant_without_one_fails(store: Store, env: dict[str, str]) -> None:
    async with store.memory():
        pass
    assert await run(env, "rotate-keys", "--tenant", "nobody", status=1) == "tenant 'nobody' has no key\n"
    off = env | {"HEADRACE_MEMORY_ENCRYPTION_KEYS": ""}
    assert "nothing is encrypted" in await run(off, "rotate-keys", status=1)
    if isinstance(store.kept, Files):
        assert FileDataKeys(store.kept.folder / FOLDER).list_all() == []


async def test_data_whose_newest_key_is_unavailable_is_not_rewritten_repeatedly(store: Store) -> None:
    """Another service rotated the key with a master key that this one does not have."""
    async with store.memory() as memory:
        await write_everything(memory, "secret words", ADA)
        await write_everything(memory, "secret words", BOB)
    more = FileMasterKeys({"more": b"m" * 32, "test": b"of these tests alone, 32 bytes.."})
    async with open_engine(store.kept) as engine:
        keys, stored = engine.rewriting.keys, engine.rewriting.stored
        await keys.prepare("acme")
        rotating = Keyring(more, stored)
        await asyncio.to_thread(rotating.refresh)
        await asyncio.to_thread(rotating.rotate, "acme")
        await asyncio.to_thread(keys.refresh)
        before = await read_stored(store)
        report = await run_pass(engine.rewriting)
        assert (report.rewritten, report.failed > 3) == (0, True), report
        assert await read_stored(store) == before
    other = store.with_keys(opening(more))
    async with open_engine(other.kept) as engine:
        report = await run_pass(engine.rewriting)
        assert (report.rewritten > 3, report.failed) == (True, 0), report
        assert (await run_pass(engine.rewriting)).rewritten == 0


async def read_stored(store: Store) -> object:
    """Return the state of a tenant's stored records: modification times of their files, or places of their rows."""
    if isinstance(store.kept, Files):
        folders = [store.kept.folder / name for name in ("facts", "schedules", "agents")]
        return sorted((str(path), path.stat().st_mtime_ns) for folder in folders for path in folder.rglob("*"))
    tables = ("facts", "schedules", "tenant_agents", "agent_versions", "webhooks", "lines")
    return [await store.run(f"SELECT ctid::text FROM {table} ORDER BY 1") for table in tables]
