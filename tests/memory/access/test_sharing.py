"""Chats that their owners share: who may read them, and that readers cannot change them."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from headrace.errors import InvalidRequest, NotFound, PermissionDenied
from headrace.v1 import memory_pb2
from services.runtime.auth.identity import ALL_SCOPES, Identity, acting_as
from tests.support.memory.engines import Kept, Serve
from tests.support.memory.messages import content
from tests.support.memory.writing import Memory, new_id, query_line, read_pages, run_line, step_line

pytestmark = pytest.mark.engines

ADA, BOB = Identity("acme", "ada"), Identity("acme", "bob", roles=frozenset(["finance"]))
CLEO, ELSE = Identity("acme", "bo"), Identity("else", "bob", roles=frozenset(["finance"]))


async def share(memory: Memory, chat_id: str, *names: str, **fields: Any) -> memory_pb2.ShareChatResponse:
    return await memory.call("ShareChat", chat_id=chat_id, shared_with=names, **fields)


async def make_chat(memory: Memory) -> tuple[str, str]:
    chat_id, run_id = new_id(), new_id()
    await memory.acting_as(ADA).append(chat_id, run_id, query_line("Who mills?"), step_line(content("He.")), run_line())
    return chat_id, run_id


async def list_readable(memory: Memory, who: Identity, chat_id: str, run_id: str) -> list[str]:
    """Return the ways in which `who` can read the chat; all other ways must fail with NOT_FOUND."""
    found: list[str] = []
    with acting_as(who):
        for name, fields in (
            ("chat", {"chat_id": chat_id}),
            ("run", {"run_id": run_id}),
            ("brief", {"chat_id": chat_id, "without_events": True}),
            ("brief run", {"run_id": run_id, "without_events": True}),
        ):
            try:
                response = await memory.chat(**fields)
            except NotFound:
                continue
            assert (response.owner, [*response.shared_with]) == ("ada", [])
            found.append(name)
        listed = (await memory.chats(scope="shared")).chats
        assert all((chat.chat_id, chat.owner, [*chat.shared_with]) == (chat_id, "ada", []) for chat in listed)
        assert not (await memory.chats()).chats
    return found + ["list"] * len(listed)


EVERY_WAY = ["chat", "run", "brief", "brief run", "list"]


@pytest.mark.parametrize(
    ("names", "readers"),
    [
        ([], []),
        (["tenant"], [BOB, CLEO]),
        (["user:bob"], [BOB]),
        (["user:bo"], [CLEO]),
        (["role:finance"], [BOB]),
        (["role:financ", "user:b", "user:BOB", "user:ada"], []),
        (["user:bo", "role:finance", "user:bo"], [BOB, CLEO]),
    ],
)
async def test_the_named_readers_can_read_a_chat(serve: Serve, names: list[str], readers: list[Identity]) -> None:
    async with serve() as memory:
        chat_id, run_id = await make_chat(memory)
        with acting_as(ADA):
            assert [*(await share(memory, chat_id, *names)).shared_with] == sorted({*names})
            assert [*(await memory.chat(chat_id=chat_id)).shared_with] == sorted({*names})
            [own] = (await memory.chats()).chats
            assert (own.owner, [*own.shared_with]) == ("ada", sorted({*names}))
            assert not (await memory.chats(scope="shared")).chats, "one's own chat is shared with nobody"
        for who in (BOB, CLEO, ELSE):
            assert await list_readable(memory, who, chat_id, run_id) == (EVERY_WAY if who in readers else []), who
    async with serve() as memory:
        for who in (BOB, CLEO, ELSE):
            assert await list_readable(memory, who, chat_id, run_id) == (EVERY_WAY if who in readers else []), who


async def test_the_last_change_of_readers_applies_and_a_revert_leaves_it(memory: Memory) -> None:
    chat_id, run_id = await make_chat(memory)
    request_id = new_id()
    with acting_as(ADA):
        first = await share(memory, chat_id, "user:bob", request_id=request_id)
        assert first.n == 4
        assert await share(memory, chat_id, "tenant", request_id=request_id) == first, "it is a repetition"
        assert (await share(memory, chat_id, "user:bob")).n == 0, "nothing had to change"
        await memory.revert(chat_id, 0)
    assert await list_readable(memory, BOB, chat_id, run_id) == EVERY_WAY
    with acting_as(ADA):
        fork = await memory.fork(chat_id)
        assert not (await memory.chat(chat_id=fork)).shared_with, "a copy is private"
        await share(memory, chat_id)
    assert await list_readable(memory, BOB, chat_id, run_id) == []
    with acting_as(BOB), pytest.raises(NotFound):
        await memory.chat(chat_id=fork)


async def test_reading_another_users_chat_is_audited_once_an_hour(memory: Memory) -> None:
    chat_id, run_id = await make_chat(memory)
    with acting_as(ADA):
        await share(memory, chat_id, "user:bob")
        await memory.chat(chat_id=chat_id)
    for _ in range(2):
        await list_readable(memory, BOB, chat_id, run_id)
    with acting_as(Identity("acme", "olga", scopes=ALL_SCOPES)):
        [line] = (await memory.call("ListAudit", event="content.read")).lines
    record = json.loads(line.line)
    assert (record["by"], record["of"], record["chatId"]) == ("bob", "ada", chat_id)


async def test_a_search_with_a_key_made_by_another_user_is_audited(memory: Memory) -> None:
    chat_id, _ = await make_chat(memory)
    for who in (ADA, replace(ADA, makers=frozenset(["mallory"])), replace(ADA, makers=frozenset(["mallory"]))):
        with acting_as(who):
            assert {hit.chat_id for hit in await memory.search("mills", "chats")} == {chat_id}
    with acting_as(Identity("acme", "olga", scopes=ALL_SCOPES)):
        lines = (await memory.call("ListAudit", event="content.read")).lines
    records = [json.loads(line.line) for line in lines]
    assert [(record["by"], record["makers"], record["chatId"]) for record in records] == [("ada", "mallory", chat_id)]


CHANGES: dict[str, dict[str, Any]] = {
    "ShareChat": {"participants": ["tenant"]},
    "UpdateChat": {"title": "Mine"},
    "DeleteChat": {},
    "Revert": {"checkpoint_id": 0},
    "UpdateState": {"state": "{}"},
    "PinMessage": {"n": 1},
    "EditSummary": {"n": 1, "text": "x"},
}


@pytest.mark.parametrize("how", ["shared_with", "participants"])
async def test_a_reader_or_participant_cannot_change_what_belongs_to_the_owner(
    memory: Memory, kept: Kept, how: str
) -> None:
    chat_id, _ = await make_chat(memory)
    await memory.call_as(ADA, "ShareChat", chat_id=chat_id, **{how: ["user:bob"]})
    before = await kept.log(chat_id)
    with acting_as(BOB):
        for rpc, fields in CHANGES.items():
            with pytest.raises(NotFound):
                await memory.call(rpc, chat_id=chat_id, **fields)
        if how == "shared_with":
            with pytest.raises(NotFound):
                await memory.put_blob(chat_id, b"x")
            # The error says that the permission is missing, not that the chat is: its readers know it exists.
            with pytest.raises(PermissionDenied, match="to read, not to take part"):
                await memory.append(chat_id, new_id(), query_line("And I?"), run_line())
            with pytest.raises(PermissionDenied):
                await memory.fork(chat_id)
    assert await kept.log(chat_id) == before


async def test_the_blobs_of_a_shared_chat_are_readable(memory: Memory) -> None:
    chat_id, _ = await make_chat(memory)
    blob_id = await memory.acting_as(ADA).put_blob(chat_id, b"png")
    with acting_as(BOB), pytest.raises(NotFound, match="no such blob"):
        await memory.blob(chat_id, blob_id)
    with acting_as(ADA):
        await share(memory, chat_id, "user:bob")
    assert (await memory.acting_as(BOB).blob(chat_id, blob_id)).data == b"png"


@pytest.mark.engines("postgres")
async def test_shared_chats_are_listed_page_by_page(memory: Memory) -> None:
    chats = [(await make_chat(memory))[0] for _ in range(5)]
    with acting_as(ADA):
        for chat_id in chats:
            await share(memory, chat_id, "role:finance")
    with acting_as(BOB):
        pages = await read_pages(memory, "ListChats", "chats", 2, scope="shared")
        whole = list((await memory.chats(scope="shared")).chats)
    assert [len(page) for page in pages] == [2, 2, 1]
    assert [chat for page in pages for chat in page] == whole
    assert sorted(chat.chat_id for chat in whole) == sorted(chats)


@pytest.mark.parametrize(
    "name", ["", "ada", "user:", "user:a b", "user:a\n", "requester", "owner", "role:a,b", "role:" + "x" * 65]
)
async def test_an_invalid_name_of_a_reader_is_rejected(memory: Memory, name: str) -> None:
    chat_id, _ = await make_chat(memory)
    with acting_as(ADA):
        with pytest.raises(InvalidRequest, match="sharedWith"):
            await share(memory, chat_id, "tenant", name)
        with pytest.raises(InvalidRequest, match="participants"):
            await share(memory, chat_id, participants=[name])
        with pytest.raises(InvalidRequest):
            await share(memory, chat_id, *(f"user:{number}" for number in range(33)))


async def test_the_log_records_readers_and_participants(memory: Memory, kept: Kept) -> None:
    chat_id, _ = await make_chat(memory)
    with acting_as(ADA):
        await share(memory, chat_id, "tenant", participants=["user:bob"])
    line = msgspec.json.decode((await kept.log(chat_id)).splitlines()[-1])
    assert {key: line[key] for key in ("_type", "_user", "sharedWith", "participants")} == {
        "_type": "sharing",
        "_user": "ada",
        "sharedWith": ["tenant", "user:bob"],
        "participants": ["user:bob"],
    }
