"""Ends of logs that a crash has cut: nobody was told that they are kept, and nobody can say whose they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.runtime.auth.identity import acting_as
from tests.memory.conftest import Files
from tests.memory.data.people import (
    ADA,
    BOB,
    FOREIGN,
    erase,
    find_marks,
    furnished,
    mark,
    place_hold,
    read_bytes,
)


def cut_line(where: str) -> bytes:
    """The beginning of a line of ada's, as a power cut leaves one."""
    return f'{{"_type":"query","query":{{"message":"{mark(ADA, where)}'.encode()


async def leave_cut_ends(kept: Files) -> dict[str, str]:
    """Give everybody but ada something, of which the ends are hers; return the chat of each."""
    async with furnished(kept, BOB, FOREIGN) as (_, (bob, foreign)):
        chats = {"bob": bob["chat"], "foreign": foreign["chat"]}
    for name, chat_id in chats.items():
        with (kept.folder / f"{chat_id}.json").open("ab") as log:
            log.write(cut_line(name))
    [facts] = (kept.folder / "facts").glob("*.json")
    with facts.open("ab") as log:
        log.write(cut_line("facts"))
    return chats


async def test_they_go_with_who_is_erased_but_for_other_tenants(folder: Path) -> None:
    kept = Files(folder)
    await leave_cut_ends(kept)
    async with kept.memory() as memory:
        assert len(find_marks(await read_bytes(kept), mark(ADA, "bob"), mark(ADA, "facts"))) == 2
        assert (await erase(memory, user="ada")).state == "done"
        stored = await read_bytes(kept)
        assert not find_marks(stored, mark(ADA, "bob"), mark(ADA, "facts"))
        assert find_marks(stored, mark(ADA, "foreign"))


async def test_those_of_a_chat_that_is_held_stay(folder: Path) -> None:
    kept = Files(folder)
    chats = await leave_cut_ends(kept)
    async with kept.memory() as memory:
        await place_hold(memory, chat=chats["bob"], reason="matter")
        assert (await erase(memory, user="ada")).state == "done"
        assert find_marks(await read_bytes(kept), mark(ADA, "bob"))


@pytest.mark.parametrize("name", ["bob", ""])
async def test_a_damaged_fact_goes_too(folder: Path, name: str) -> None:
    """Whether or not there is another reason to write the facts anew."""
    kept = Files(folder)
    async with furnished(kept, BOB, *([ADA] if name else [])):
        pass
    [facts] = (folder / "facts").glob("*.json")
    facts.write_bytes(cut_line("fact") + b"\n" + facts.read_bytes())
    async with kept.memory() as memory:
        with acting_as(BOB):
            before = await memory.list_facts()
        assert (await erase(memory, user="ada")).state == "done"
        assert not find_marks(await read_bytes(kept), mark(ADA, "fact"))
        with acting_as(BOB):
            assert await memory.list_facts() == before
