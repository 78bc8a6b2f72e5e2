"""The client against a scripted orchestrator and memory, over a Unix socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headrace.client import Client
from headrace.errors import ChatBusy, InvalidRequest, Overloaded, ProviderUnavailable
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.server import serving_grpc
from tests.facade.scripted import CHAT, RUN, Script, ScriptedMemory, answering, complete, opening, served, text


@asynccontextmanager
async def client(folder: Path, script: Script) -> AsyncGenerator[Client]:
    address = f"unix:{folder}/s.sock"
    settings = ServerSettings(listen=address, drain_s=0)
    async with (
        asyncio.timeout(100),
        serving_grpc(settings, served(script, ScriptedMemory())),
        Client(address, memory_address=address) as opened,
    ):
        yield opened


async def test_ask_gives_every_delta_in_order(tmp_path: Path) -> None:
    script = Script(query=answering("a", "\n\n"))
    async with (
        client(tmp_path, script) as headrace,
        headrace.ask("hi", agent_key="helper", chat_id=CHAT, params='{"a":1}') as deltas,
    ):
        assert [delta async for delta in deltas] == script.query
    request = script.requests[0]
    assert (request.message, request.agent_key, request.params) == ("hi", "helper", '{"a":1}')
    assert not request.HasField("when_busy")


async def test_an_error_before_the_first_event_is_ours(tmp_path: Path) -> None:
    async with client(tmp_path, Script(query=[ChatBusy("busy", runId=RUN)])) as headrace:
        with pytest.raises(ChatBusy) as caught:
            async with headrace.ask("hi") as deltas:
                await anext(deltas)
    assert caught.value.metadata == {"runId": RUN}


async def test_an_error_after_the_first_event_is_ours(tmp_path: Path) -> None:
    seen: list[int] = []

    async def read(headrace: Client) -> None:
        async with headrace.ask("hi") as deltas:
            async for delta in deltas:
                seen.append(delta.seq)

    async with client(tmp_path, Script(query=[text(1, "a"), Overloaded("full")])) as headrace:
        with pytest.raises(Overloaded):
            await read(headrace)
    assert seen == [1]


async def test_leaving_early_cancels_the_call(tmp_path: Path) -> None:
    script = Script(query=[*opening(), asyncio.Event()])
    async with client(tmp_path, script) as headrace:
        async with headrace.ask("hi") as deltas:
            await anext(deltas)
        await script.closed.wait()


async def test_leaving_a_flood_unread_cancels_the_call(tmp_path: Path) -> None:
    script = Script(query=[text(1, "x" * 100_000)] * 2_000)
    async with client(tmp_path, script) as headrace:
        async with headrace.ask("hi") as deltas:
            await anext(deltas)
            await asyncio.sleep(0.2)
        await script.closed.wait()
    assert script.sent < 1_000


async def test_attach_submit_cancel_and_lists_reach_their_rpcs(tmp_path: Path) -> None:
    script = Script(attaches=[[complete(9)]])
    async with client(tmp_path, script) as headrace:
        async with headrace.attach(RUN, 8) as deltas:
            assert [delta.seq async for delta in deltas] == [9]
        assert (await headrace.submit(RUN, "{}", tool_id="t")).accepted
        assert (await headrace.cancel(RUN)).state == "running"
        assert [agent.key for agent in await headrace.agents()] == ["helper"]
        assert (await headrace.chats()).chats[0].chat_id == CHAT
        await headrace.chat(CHAT)
    assert script.requests[0].last_seq == 8


async def test_a_refused_request_is_ours(tmp_path: Path) -> None:
    async with client(tmp_path, Script()) as headrace:
        with pytest.raises(InvalidRequest, match="runId"):
            await headrace.cancel("nonsense")


async def test_a_server_that_cannot_be_reached_is_provider_unavailable(tmp_path: Path) -> None:
    async with asyncio.timeout(100), Client(f"unix:{tmp_path}/nobody") as headrace:
        with pytest.raises(ProviderUnavailable):
            await headrace.agents()
        with pytest.raises(ProviderUnavailable):
            async with headrace.ask("hi") as deltas:
                await anext(deltas)
