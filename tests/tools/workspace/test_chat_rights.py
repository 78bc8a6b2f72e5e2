"""Memory says whose a chat is, also where it starts or restarts while it is asked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from headrace.v1 import memory_pb2, memory_pb2_grpc
from services.runtime.auth.identity import Identity, acting_as
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.server import GrpcService, serving_grpc
from services.tools.workspace.chat_rights import ChatRights
from services.tools.workspace.owners import CHAT_OWNER
from services.tools.workspace.workspace import Workspaces

CHAT = "00000000-0000-4000-8000-000000000002"
ANN = Identity("mill", "ann")


class Memory(memory_pb2_grpc.MemoryServiceServicer):
    async def GetChat(self, request: memory_pb2.GetChatRequest, context: Any) -> memory_pb2.GetChatResponse:
        return memory_pb2.GetChatResponse(owner="ann", access="own")


async def test_memory_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    memory = Memory()  # pyright: ignore[reportAbstractUsage] - one RPC is asked
    served = GrpcService("headrace.v1.MemoryService", memory, memory_pb2_grpc.add_MemoryServiceServicer_to_server)
    address = f"unix:{tmp_path}/m.sock"
    async with asyncio.timeout(100), open_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await memory_pb2_grpc.MemoryServiceStub(channel).GetState(memory_pb2.GetStateRequest())
        # The channel rests now, and a call that does not wait for it fails at once.
        rights = ChatRights(channel, Workspaces(tmp_path / "workspaces"))
        with acting_as(ANN):
            entering = asyncio.create_task(enter(rights))
        await asyncio.sleep(0)
        async with serving_grpc(ServerSettings(listen=address, drain_s=0.0), [served]):
            assert await entering == (CHAT, ANN)


async def enter(rights: ChatRights) -> object:
    await rights.enter_chat(CHAT)
    return CHAT_OWNER.get()
