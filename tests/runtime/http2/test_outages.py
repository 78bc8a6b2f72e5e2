"""What a caller is told of a service that is away or silent: which one it was."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace.errors import ProviderUnavailable
from headrace.streams import rpc_errors
from headrace.v1 import memory_pb2
from headrace.v1.memory_pb2_grpc import MemoryServiceStub
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.peer_calls import translating_peer_errors

REQUEST = memory_pb2.GetStateRequest(chat_id="5f0c0000-0000-4000-8000-000000000001")


async def test_a_service_that_is_away_is_named(tmp_path: Path) -> None:
    async with asyncio.timeout(100), open_channel(f"unix:{tmp_path}/nobody.sock") as channel:
        with pytest.raises(ProviderUnavailable, match=r"^MemoryService cannot be reached; try again$"), rpc_errors():
            await MemoryServiceStub(channel).GetState(REQUEST)


async def test_a_service_that_does_not_answer_in_time_is_named() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")  # SETTINGS, and never anything more
        await reader.read(-1)
        writer.close()

    async with asyncio.timeout(100), await asyncio.start_server(silent, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        async with open_channel(f"127.0.0.1:{port}") as channel:
            said = r"^MemoryService did not answer in time; try again$"
            with pytest.raises(ProviderUnavailable, match=said), translating_peer_errors():
                await MemoryServiceStub(channel).GetState(REQUEST, timeout=0.2)
