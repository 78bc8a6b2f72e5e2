"""The owner of a chat is in its first log line, in either engine, and survives the loss of the index."""

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


async def test_every_log_line_names_the_owner(memory: Memory, kept: Kept) -> None:
    with acting_as(ADA):
        chat_id, _ = await memory.begin_with(step_line(content("hi")), run_line(), message="hello")
        await memory.update_state(chat_id, 0, "{}")
        await memory.revert(chat_id, 0)
        fork = await memory.fork(chat_id, seq=2)
    for found in (chat_id, fork):
        lines = [msgspec.json.decode(line) for line in (await kept.log(found)).splitlines()]
        assert lines
        assert {(line["_tenant"], line["_user"]) for line in lines} == {("acme", "ada")}


async def test_lists_contain_only_the_users_own_chats_page_by_page(memory: Memory) -> None:
    for number in range(5):
        for who in (ADA, BOB):
            await memory.acting_as(who).begin_and_end(f"{who.user} {number}")
    with acting_as(ADA):
        page = await memory.chats(page_size=3)
        last_page = await memory.chats(page_size=3, page_token=page.next_page_token)
        assert [chat.chat_name for chat in (*page.chats, *last_page.chats)] == [
            f"ada {number}" for number in range(4, -1, -1)
        ]
        assert not last_page.next_page_token
    assert await names(memory) == []


async def test_facts_and_their_request_ids_belong_to_one_user(memory: Memory) -> None:
    ids: list[str] = []
    for who in (ADA, BOB):
        with acting_as(who):
            ids.append(await memory.remember(f"{who.user} likes tea", "r1"))
            assert await memory.remember("again", "r1") == ids[-1]
            assert [hit.excerpt for hit in await memory.search("tea")] == [f"{who.user} likes tea"]
    assert ids[0] != ids[1]
    assert await memory.search("tea") == []


async def test_an_append_to_another_users_chat_gets_not_found(memory: Memory) -> None:
    chat_id, run_id = await memory.acting_as(ADA).begin("hello", request_id="q1")
    with acting_as(BOB):
        for request_id in (run_id, new_id()):
            with pytest.raises(NotFound, match=r"does not exist$"):
                await memory.append(chat_id, run_id, step_line(content("hi")), request_id=request_id)
            with pytest.raises(NotFound, match="does not exist"):
                await memory.append(chat_id, new_id(), query_line("hi", request_id="q1"), request_id=request_id)
        # Ada's run is not a run of a chat of his own either.
        with pytest.raises(NotFound, match="has no query line"):
            await memory.append(new_id(), run_id, query_line("mine"))


@pytest.mark.parametrize("is_index_lost", [False, True])
async def test_ownership_survives_a_restart_and_a_lost_index(serve: Serve, kept: Kept, is_index_lost: bool) -> None:
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


async def test_a_log_from_before_tenants_belongs_to_the_default_user(folder: Path, serve: Serve) -> None:
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
