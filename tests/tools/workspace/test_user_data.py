"""The user data that the tools service stores: exported as pieces of an archive, and deleted."""

import json
import os
from collections.abc import Collection
from pathlib import Path

import pytest

from headrace.v1 import data_pb2, tools_pb2
from services.runtime.auth.identity import Identity, acting_as
from services.tools.execution.effect_records import EffectRecords, Outcome
from services.tools.interpreter.pool import InterpreterPool
from services.tools.mcp_client.oauth.token_store import Client, Issuer, Token, TokenStore
from services.tools.user_data import ChatFolders, erase_user_data, read_user_data
from services.tools.workspace.retention import GOING
from services.tools.workspace.workspace import Workspaces

ADA, BOB, FOREIGN = Identity("acme", "ada"), Identity("acme", "bob"), Identity("else", "ada")
CHATS = {
    ADA: "00000000-0000-4000-8000-00000000000a",
    BOB: "00000000-0000-4000-8000-00000000000b",
    FOREIGN: "00000000-0000-4000-8000-00000000000c",
}
RUN = "00000000-0000-4000-8000-0000000000f1"
GRANTOR = Issuer("https://issuer.example", "https://issuer.example/token", "https://mcp.example", Client("c"))


def mark(who: Identity) -> str:
    return f"mark-{who.tenant}-{who.user}"


def make_folders(root: Path) -> tuple[ChatFolders, TokenStore]:
    folders = ChatFolders(Workspaces(root / "workspaces"), EffectRecords(root / "effects"))
    tokens = TokenStore(root / "tokens", "a key that nobody can guess, of 32 characters")
    for who, chat_id in CHATS.items():
        with acting_as(who):
            workspace = folders.workspaces.open_workspace(chat_id)
            workspace.write_file("outputs/deep/note.txt", f"{mark(who)}\n".encode() * 9000)
            workspace.write_file("uploads/empty.txt", b"")
        for number in range(2):
            key = f"{RUN}/{who.user}{number}"
            folders.effects.record_start(chat_id, key, "write_file")
            record = folders.effects.find_record(chat_id, key)
            assert record is not None
            folders.effects.record_end(chat_id, record, Outcome(ok=True, result=mark(who)))
        tokens.put_token(Token("crm", who.tenant, who.user, GRANTOR, mark(who)))
    return folders, tokens


def read_files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def select_others(files: dict[str, bytes], *excluded: Identity) -> dict[str, bytes]:
    chats = [CHATS[who] for who in excluded]
    return {
        name: data for name, data in files.items() if not any(chat in name for chat in chats) and "tokens" not in name
    }


async def erase(folders: ChatFolders, tokens: TokenStore, **wanted: object) -> dict[str, int]:
    request = tools_pb2.EraseOwnedDataRequest(**wanted)  # pyright: ignore[reportArgumentType] - fields of its own

    async def forget(tenant: str, user: str, kept_servers: Collection[str]) -> int:
        return len(tokens.delete_all_of(tenant, user, kept_servers))

    erased = (await erase_user_data(folders, InterpreterPool(1), forget, request)).erased
    return {item.name: item.count for item in erased}


async def test_an_export_has_all_files_and_records_but_no_tokens(tmp_path: Path) -> None:
    folders, _ = make_folders(tmp_path)
    entries: dict[str, bytearray] = {}
    name = ""
    async for piece in read_user_data(folders, ADA, ["crm"]):
        assert len(piece.data) <= 64 * 1024
        if piece.name:
            name = piece.name
            entries[name] = bytearray()
        entries[name] += piece.data
    chat = CHATS[ADA]
    assert bytes(entries[f"files/{chat}/outputs/deep/note.txt"]) == f"{mark(ADA)}\n".encode() * 9000
    assert entries[f"files/{chat}/uploads/empty.txt"] == b""
    assert len([name for name in entries if name.startswith(f"calls/{chat}/")]) == 2
    assert json.loads(bytes(entries["authorizations.jsonl"])) == {"server": "crm"}
    everything = b"".join(entries.values())
    assert mark(BOB).encode() not in everything
    assert b"issuer" not in everything


async def test_an_export_includes_files_whose_name_is_not_utf_8(tmp_path: Path) -> None:
    folders, _ = make_folders(tmp_path)
    outputs = folders.workspaces.root / CHATS[ADA] / "outputs"
    for name in (b"a\xff", b"a\xfe", "ü\n".encode()):
        (outputs / os.fsdecode(name)).write_bytes(name)
    names = [piece.name async for piece in read_user_data(folders, ADA, []) if piece.name.startswith("files/")]
    found = {name.rpartition("/")[2] for name in names}
    assert found == {"a\\xff", "a\\xfe", "ü\n", "note.txt", "empty.txt"}


async def test_erasing_a_user_leaves_everybody_elses_folders_unchanged(tmp_path: Path) -> None:
    folders, tokens = make_folders(tmp_path)
    before = select_others(read_files(tmp_path), ADA)
    assert await erase(folders, tokens, tenant="acme", user="ada") == {
        "authorizations": 1,
        "call_records": 2,
        "workspaces": 1,
    }
    after = read_files(tmp_path)
    assert select_others(after, ADA) == before == {name: data for name, data in after.items() if "tokens" not in name}
    assert not [name for name, data in after.items() if mark(ADA).encode() in data and mark(FOREIGN) not in str(data)]
    assert tokens.find_token("crm", ADA) is None
    assert tokens.find_token("crm", BOB) is not None
    assert tokens.find_token("crm", FOREIGN) is not None
    assert await erase(folders, tokens, tenant="acme", user="ada") == {}


async def test_erasing_a_tenant_keeps_what_is_under_a_hold(tmp_path: Path) -> None:
    folders, tokens = make_folders(tmp_path)
    assert (await erase(folders, tokens, tenant="acme", held_users=["bob"]))["workspaces"] == 1
    assert tokens.find_token("crm", BOB) is not None
    assert await erase(folders, tokens, tenant="acme", held_chat_ids=[CHATS[BOB]]) == {"authorizations": 1}
    assert await erase(folders, tokens, tenant="acme") == {"call_records": 2, "workspaces": 1}
    assert {chat_id for chat_id, _ in folders.list_user_folders()} == {CHATS[FOREIGN]}


async def test_erasing_a_participant_deletes_only_their_call_records(tmp_path: Path) -> None:
    folders, tokens = make_folders(tmp_path)
    other = "00000000-0000-4000-8000-0000000000f2"
    folders.effects.record_start(CHATS[BOB], f"{other}/call", "write_file")
    before = select_others(read_files(tmp_path), BOB)
    redacted = [data_pb2.ChatRuns(chat_id=CHATS[BOB], run_ids=[RUN])]
    assert (await erase(folders, tokens, tenant="acme", user="cleo", redacted=redacted)) == {"call_records": 2}
    assert folders.effects.find_record(CHATS[BOB], f"{other}/call") is not None
    assert folders.effects.find_record(CHATS[BOB], f"{RUN}/bob0") is None
    assert select_others(read_files(tmp_path), BOB) == before
    assert (folders.workspaces.root / CHATS[BOB]).is_dir()


@pytest.mark.parametrize("folder_name", ["workspaces", "effects"])
async def test_an_erasure_deletes_the_rest_of_an_interrupted_removal(tmp_path: Path, folder_name: str) -> None:
    folders, tokens = make_folders(tmp_path)
    cut = tmp_path / folder_name / f"{GOING}{CHATS[ADA]}-cut"
    cut.mkdir()
    (cut / "note.txt").write_text(mark(ADA))
    await erase(folders, tokens, tenant="acme", user="ada")
    assert not cut.exists()
