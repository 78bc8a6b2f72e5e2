"""The owner of a chat: its first line says so, in either engine, and whatever becomes of the index."""

import json
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from headrace.errors import NotFound
from services.memory.storage.files.disk import Disk
from services.memory.storage.files.engine import open_files
from services.memory.storage.records.user_facts import decode_facts
from services.runtime.auth.identity import DEFAULT, Identity, acting_as
from tests.support.memory.engines import Files, Kept, Serve, lose_index
from tests.support.memory.messages import content
from tests.support.memory.writing import Memory, new_id, query_line, run_line, step_line

pytestmark = pytest.mark.engines

ADA, BOB = Identity("acme", "ada"), Identity("acme", "bob")


async def names(memory: Memory) -> list[str]:
    return [chat.chat_name for chat in (await memory.chats()).chats]


async def test_every_line_says_whose_it_is(memory: Memory, kept: Kept) -> None:
    with acting_as(ADA):
        chat_id, _ = await memory.begin_with(step_line(content("hi")), run_line(), message="hello")
        await memory.update_state(chat_id, 0, "{}")
        await memory.revert(chat_id, 0)
        fork = await memory.fork(chat_id, seq=2)
    for found in (chat_id, fork):
        lines = [msgspec.json.decode(line) for line in (await kept.log(found)).splitlines()]
        assert lines
        assert {(line["_tenant"], line["_user"]) for line in lines} == {("acme", "ada")}


async def test_lists_have_ones_own_in_pages(memory: Memory) -> None:
    for number in range(5):
        for who in (ADA, BOB):
            await memory.acting_as(who).begin_and_end(f"{who.user} {number}")
    with acting_as(ADA):
        page = await memory.chats(page_size=3)
        rest = await memory.chats(page_size=3, page_token=page.next_page_token)
        assert [chat.chat_name for chat in (*page.chats, *rest.chats)] == [
            f"ada {number}" for number in range(4, -1, -1)
        ]
        assert not rest.next_page_token
    assert await names(memory) == []


async def test_facts_are_of_one_user_and_so_are_their_request_ids(memory: Memory) -> None:
    ids: list[str] = []
    for who in (ADA, BOB):
        with acting_as(who):
            ids.append(await memory.remember(f"{who.user} likes tea", "r1"))
            assert await memory.remember("again", "r1") == ids[-1]
            assert [hit.excerpt for hit in await memory.search("tea")] == [f"{who.user} likes tea"]
    assert ids[0] != ids[1]
    assert await memory.search("tea") == []


async def test_an_append_to_anothers_chat_is_one_to_none(memory: Memory) -> None:
    chat_id, run_id = await memory.acting_as(ADA).begin("hello", request_id="q1")
    with acting_as(BOB):
        for request_id in (run_id, new_id()):
            with pytest.raises(NotFound, match=r"does not exist$"):
                await memory.append(chat_id, run_id, step_line(content("hi")), request_id=request_id)
            with pytest.raises(NotFound, match="does not exist"):
                await memory.append(chat_id, new_id(), query_line("hi", request_id="q1"), request_id=request_id)
        # As the beginning of a chat of his own, a run of hers is none.
        with pytest.raises(NotFound, match="has no query line"):
            await memory.append(new_id(), run_id, query_line("mine"))


@pytest.mark.parametrize("is_index_lost", [False, True])
async def test_after_a_restart_it_is_the_same(serve: Serve, kept: Kept, is_index_lost: bool) -> None:
    async with serve() as memory:
        with acting_as(ADA):
            await memory.begin_and_end("hers")
            await memory.remember("ada likes tea", "r1")
    if is_index_lost and isinstance(kept, Files):
        lose_index(kept.folder)
    async with serve() as memory:
        assert await names(memory) == []
        with acting_as(ADA):
            assert await names(memory) == ["hers"]
            assert [hit.excerpt for hit in await memory.search("tea")] == ["ada likes tea"]


async def test_what_is_from_before_there_were_tenants_is_the_default_users(folder: Path, serve: Serve) -> None:
    async with serve() as memory:
        chat_id, _ = await memory.begin_and_end("old")
    log = folder / f"{chat_id}.json"
    lines = [json.loads(line) | {"_tenant": "", "_user": ""} for line in log.read_text().splitlines()]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    async with serve() as memory:
        assert await names(memory) == ["old"]
        with acting_as(ADA):
            assert await names(memory) == []
    (fact,) = decode_facts(b'{"_type":"fact","_n":1,"uuid":"u","requestId":"","updatedAt":1,"_user":"","text":"tea"}')
    assert fact.owner == DEFAULT


async def test_export_and_import_keep_the_owner(folder: Path, tmp_path: Path, serve: Serve) -> None:
    async with serve() as memory:
        chat_id, _ = await memory.acting_as(ADA).begin_and_end("hers")
    with closing(Disk(folder)) as disk, closing(Disk(tmp_path / "new")) as other:
        async with open_files(disk) as store, open_files(other) as new:
            await new.chats.import_log(chat_id, await store.chats.export(await store.chats.load(chat_id)))
            assert (await new.index.find_entry(chat_id)).owner == ADA
