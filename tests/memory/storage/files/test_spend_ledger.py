"""The cost of deleted chats survives the loss of the index, which is rebuilt from the logs of the others."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from services.memory.storage.files.indexing.database import IndexDatabase
from services.memory.storage.files.indexing.index_recovery import SPEND
from services.memory.storage.spend import SpendKey, SpendSum
from tests.support.memory.engines import Serve, lose_index
from tests.support.memory.spend import charge, said, total
from tests.support.memory.writing import Memory, run_line


async def add_charged_chat(memory: Memory, nano_usd: int, chat_id: str = "") -> str:
    chat_id, _ = await memory.begin_with(said(charge(nano_usd=nano_usd)), run_line(), chat_id=chat_id)
    return chat_id


async def sum_after_rebuild(serve: Serve, folder: Path) -> int:
    """Rebuild the index from the logs and the ledger, and return its total."""
    lose_index(folder)
    async with serve() as memory:
        return await total(memory)


async def test_a_rebuilt_index_includes_the_cost_of_deleted_chats(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        deleted_ids = [await add_charged_chat(memory, 100), await add_charged_chat(memory, 20)]
        await add_charged_chat(memory, 3)
        for chat_id in deleted_ids:
            await memory.delete(chat_id)
        assert await total(memory) == 123
    for _ in range(2):
        assert await sum_after_rebuild(serve, folder) == 123
    # Another deletion, after the restart, is added to those.
    async with serve() as memory:
        await memory.delete(await add_charged_chat(memory, 4000))
    assert await sum_after_rebuild(serve, folder) == 4123


async def test_a_new_chat_with_a_deleted_chats_id_is_counted_separately(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        chat_id = await add_charged_chat(memory, 100)
        await memory.delete(chat_id)
        await add_charged_chat(memory, 20, chat_id)
        assert await total(memory) == 120
    lose_index(folder)
    async with serve() as memory:
        assert await total(memory) == 120
        await memory.delete(chat_id)
        assert await total(memory) == 120
    assert await sum_after_rebuild(serve, folder) == 120


@pytest.mark.parametrize("is_index_lost", [True, False])
async def test_a_deletion_interrupted_by_a_crash_is_charged_once(
    serve: Serve, folder: Path, is_index_lost: bool
) -> None:
    async with serve() as memory:
        chat_id = await add_charged_chat(memory, 100)
    log = (folder / f"{chat_id}.json").read_bytes()
    async with serve() as memory:
        await memory.delete(chat_id)
    # As after a crash between the ledger's entry and the deletion of the log.
    (folder / f"{chat_id}.json").write_bytes(log)
    lose_index(folder)
    async with serve() as memory:
        assert await total(memory) == 100
        await memory.delete(chat_id)
        assert await total(memory) == 100
    if is_index_lost:
        lose_index(folder)
    async with serve() as memory:
        assert await total(memory) == 100


async def test_the_cut_tail_of_the_ledger_is_set_aside(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        await memory.delete(await add_charged_chat(memory, 100))
    [path] = (folder / SPEND).glob("*.json")
    path.write_bytes(path.read_bytes() + b'{"chatId":"')
    lose_index(folder)
    async with serve() as memory:
        assert await total(memory) == 100
        await memory.delete(await add_charged_chat(memory, 20))
    assert await sum_after_rebuild(serve, folder) == 120


def test_renaming_a_spender_after_an_interruption_changes_no_sum(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    key = SpendKey(day=1, tenant="acme", user="ada", agent_key="writer", model="sim/demo", credential="")
    with closing(IndexDatabase(path, is_new=True)) as database:
        database.spend.add_rows("", [(key, SpendSum(10, 10, 10, 10, 10))])
    cut = "CREATE TRIGGER cut BEFORE DELETE ON spend BEGIN SELECT RAISE(ABORT, 'cut'); END"
    for statement in (cut, "DROP TRIGGER cut"):
        with closing(sqlite3.connect(path)) as file:
            file.execute(statement)
            file.commit()
        with closing(IndexDatabase(path)) as database, suppress(sqlite3.IntegrityError):
            database.rename_spender("acme", "ada", "erased-1")
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT user_name, input_tokens FROM spend").fetchall() == [("erased-1", 10)]
