"""The owner of a chat's workspace, uploads and records, as memory reports it, even if memory starts during the call."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest

from headrace.errors import NotFound
from headrace.v1 import memory_pb2, memory_pb2_grpc
from services.runtime.auth.identity import DEFAULT, Identity, acting_as
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.server import GrpcService, serving_grpc
from services.tools.workspace.chat_rights import ChatRights
from services.tools.workspace.owners import CHAT_OWNER
from services.tools.workspace.workspace import Workspaces

CHAT = "00000000-0000-4000-8000-000000000001"
ADA, BOB = Identity("acme", "ada"), Identity("acme", "bob")


def test_a_workspace_belongs_to_its_first_user(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path)
    with acting_as(ADA):
        workspaces.open_workspace(CHAT).write_file("a.txt", b"mine")
    for other in (BOB, Identity("other", "ada"), DEFAULT):
        with acting_as(other):
            with pytest.raises(NotFound, match=f"^chat {CHAT} does not exist$"):
                workspaces.open_workspace(CHAT)
            with pytest.raises(NotFound):
                workspaces.check_owner(CHAT)
            with pytest.raises(FileNotFoundError):
                workspaces.find_workspace(CHAT)
    with acting_as(ADA):
        assert workspaces.find_workspace(CHAT).list_files("", 10)
        Workspaces(tmp_path).check_owner(CHAT)


def test_a_workspace_without_an_owner_record_belongs_to_the_default_user(tmp_path: Path) -> None:
    (tmp_path / CHAT).mkdir()
    workspaces = Workspaces(tmp_path)
    with acting_as(ADA), pytest.raises(NotFound):
        workspaces.open_workspace(CHAT)
    workspaces.open_workspace(CHAT)
    workspaces.check_owner(CHAT)


def test_looking_up_an_unowned_workspace_does_not_claim_it(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path)
    with acting_as(ADA):
        workspaces.check_owner(CHAT)
        with pytest.raises(FileNotFoundError):
            workspaces.find_workspace(CHAT)
    with acting_as(BOB):
        workspaces.open_workspace(CHAT)


def test_only_one_of_two_concurrent_users_becomes_the_owner(tmp_path: Path) -> None:
    begin, refused = threading.Barrier(8), list[Identity]()

    def come(who: Identity) -> None:
        with acting_as(who):
            begin.wait(10)
            try:
                Workspaces(tmp_path).register_chat(CHAT)
            except NotFound:
                refused.append(who)

    threads = [threading.Thread(target=come, args=(who,)) for who in (ADA, BOB) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(refused) == 4
    assert len(set(refused)) == 1
    assert [path.name for path in (tmp_path / ".owners" / CHAT).iterdir()] == ["owner"]


def test_files_planted_before_a_chat_existed_are_removed_for_its_owner(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path)
    with acting_as(BOB):
        workspaces.open_workspace(CHAT).write_file("planted.txt", b"boo")
    workspaces.clear_for_owner(CHAT, ADA)
    with acting_as(ADA):
        assert workspaces.open_workspace(CHAT).list_files("", 10) == []


ANN = Identity("mill", "ann")


class Memory(memory_pb2_grpc.MemoryServiceServicer):
    access = "own"

    async def GetChat(self, request: memory_pb2.GetChatRequest, context: Any) -> memory_pb2.GetChatResponse:
        return memory_pb2.GetChatResponse(owner="ann", access=self.access)


def serve_memory(access: str) -> GrpcService:
    memory = Memory()  # pyright: ignore[reportAbstractUsage] - one RPC is asked
    memory.access = access
    return GrpcService("headrace.v1.MemoryService", memory, memory_pb2_grpc.add_MemoryServiceServicer_to_server)


async def test_a_read_only_user_cannot_become_the_owner_of_a_chats_files(tmp_path: Path) -> None:
    settings = ServerSettings(listen=f"unix:{tmp_path}/m.sock", drain_s=0.0)
    async with (
        serving_grpc(settings, [serve_memory("read")]),
        open_channel(settings.listen) as channel,
    ):
        rights = ChatRights(channel, Workspaces(tmp_path / "workspaces"))
        with acting_as(Identity("mill", "ben")), pytest.raises(NotFound, match=f"^chat {CHAT} does not exist$"):
            await rights.enter_chat(CHAT)


async def test_an_ownership_check_waits_for_memory_to_start(tmp_path: Path) -> None:
    served = serve_memory("own")
    address = f"unix:{tmp_path}/m.sock"
    async with asyncio.timeout(100), open_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await memory_pb2_grpc.MemoryServiceStub(channel).GetState(memory_pb2.GetStateRequest())
        # The channel is in backoff now, so a call that does not wait for it fails at once.
        rights = ChatRights(channel, Workspaces(tmp_path / "workspaces"))
        with acting_as(ANN):
            entering = asyncio.create_task(enter(rights))
        await asyncio.sleep(0)
        async with serving_grpc(ServerSettings(listen=address, drain_s=0.0), [served]):
            assert await entering == (CHAT, ANN)


async def enter(rights: ChatRights) -> object:
    await rights.enter_chat(CHAT)
    return CHAT_OWNER.get()
