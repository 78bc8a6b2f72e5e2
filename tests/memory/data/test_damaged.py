"""Erasing when a log is damaged: the receipt names what cannot be changed, and everything else is erased."""

import pytest

from services.runtime.auth.identity import acting_as
from tests.support.memory.engines import Files, Kept, ModelledTables
from tests.support.memory.people import ADA, BOB, ask, count, erase, export, furnished, mark, name_kept_items, share
from tests.support.postgresql import connected

pytestmark = pytest.mark.engines


def change_byte(line: bytes) -> bytes:
    at = len(line) // 2
    return line[:at] + (b"B" if line[at : at + 1] == b"A" else b"A") + line[at + 1 :]


async def damage_line(kept: Kept, chat_id: str, n: int) -> None:
    """Change a byte of a line as a disk error does, while no service runs."""
    if isinstance(kept, Files):
        path = kept.folder / f"{chat_id}.json"
        lines = path.read_bytes().split(b"\n")
        lines[n - 1] = change_byte(lines[n - 1])
        path.write_bytes(b"\n".join(lines))
        return
    find = "SELECT data FROM lines WHERE n = $2 AND chat = (SELECT id FROM chats WHERE chat_id = $1)"
    change = "UPDATE lines SET data = $3 WHERE n = $2 AND chat = (SELECT id FROM chats WHERE chat_id = $1)"
    if isinstance(kept, ModelledTables):
        database = kept.server.tables.committed
        (stored,) = database.execute(find.replace("$", "?"), (chat_id, n)).fetchone()
        database.execute(change.replace("$", "?"), (chat_id, n, change_byte(stored)))
        return
    async with connected(kept.url) as connection:
        stored = await connection.fetchval(find, chat_id, n)
        await connection.execute(change, chat_id, n, change_byte(stored or b""))


@pytest.mark.parametrize("n", [2, 6])
async def test_a_damaged_chat_of_another_user_is_named_and_the_rest_is_erased(kept: Kept, n: int) -> None:
    """The damaged line belongs to the chat's owner or to the erased user."""
    async with furnished(kept, ADA, BOB) as (memory, (_, bob)):
        chat_id = bob["chat"]
        await share(memory, BOB, chat_id, "user:ada")
        await ask(memory, ADA, mark(ADA, "shared"), chat_id)
    await damage_line(kept, chat_id, n)
    before = await kept.log(chat_id)
    async with kept.memory() as memory:
        erasure = await erase(memory, user="ada")
        assert erasure.state == "done"
        assert name_kept_items(erasure)["damaged_chat"] == chat_id
        assert "runs_in_others_chats" not in count(erasure)
        assert count(erasure)["chats"] == 1
        assert await kept.log(chat_id) == before
        with acting_as(BOB):
            assert await export(memory, BOB)
        # When its owner is erased, the whole chat is.
        again = await erase(memory, user="bob")
        assert count(again)["chats"] == 1
    async with kept.memory() as memory:
        assert "damaged_chat" not in name_kept_items(await erase(memory, user="ada"))
