"""Reading a stream five ways, from a real server that plays a script."""

from __future__ import annotations

import asyncio
import itertools
import socket

import grpc
import pytest

from headrace.errors import BadFrame, Overloaded, ProviderUnavailable
from headrace.streams import reading, rpc_errors
from headrace.v1 import llm_pb2_grpc
from services.runtime.rpc.channels import open_channel
from tests.support.scripted_llm import COUNT, REQUEST, SILENCE_S, Suite, read, serving_script


async def test_gives_every_delta_as_it_was_sent_to_the_end() -> None:
    texts = ["\n\n", " ", "", "水", "half a wo", "rd\x00"]
    seen: list[str] = []
    async with serving_script(texts) as suite:
        await read(suite.stub.StreamChat(REQUEST), seen)
        assert suite.llm.ended_by is None
    assert seen == texts


async def test_an_error_before_the_first_delta_keeps_class_message_and_metadata() -> None:
    seen: list[str] = []
    async with serving_script([Overloaded("no room", retry_after_s=1.5, provider="p")]) as suite:
        with pytest.raises(Overloaded, match=r"^no room$") as caught:
            await read(suite.stub.StreamChat(REQUEST), seen)
    assert seen == []
    assert caught.value.metadata == {"provider": "p"}
    assert caught.value.retry_after_s == 1.5


async def test_an_error_after_the_first_delta_comes_after_what_was_sent() -> None:
    seen: list[str] = []
    async with serving_script(["Hel", "lo", BadFrame("not JSON")]) as suite:
        with pytest.raises(BadFrame, match=r"^not JSON$"):
            await read(suite.stub.StreamChat(REQUEST), seen)
    assert seen == ["Hel", "lo"]


async def test_leaving_while_the_service_is_silent_cancels_its_work() -> None:
    async with serving_script(["first", SILENCE_S]) as suite:
        async with reading(suite.stub.StreamChat(REQUEST)) as deltas:
            async for _ in deltas:
                break
        await suite.wait_closed()
        assert suite.llm.ended_by is asyncio.CancelledError
        assert suite.llm.closed_in is suite.llm.opened_in


async def test_leaving_while_the_service_cannot_write_closes_its_generator_in_its_own_task() -> None:
    async with serving_script(itertools.repeat("x" * 100_000)) as suite:
        async with reading(suite.stub.StreamChat(REQUEST)) as deltas:
            async for _ in deltas:
                break
            while await grows(suite):
                pass
        await suite.wait_closed()
        assert suite.llm.ended_by is GeneratorExit
        assert suite.llm.closed_in is suite.llm.opened_in


async def grows(suite: Suite) -> bool:
    """Whether the service still gets rid of replies that nobody reads."""
    before = suite.llm.sent
    await asyncio.sleep(0.1)
    return suite.llm.sent > before


async def fail_while_reading(suite: Suite) -> None:
    async with reading(suite.stub.StreamChat(REQUEST)) as deltas:
        async for _ in deltas:
            raise ZeroDivisionError


async def test_an_error_in_the_readers_own_block_cancels_the_work() -> None:
    async with serving_script(["first", SILENCE_S]) as suite:
        with pytest.raises(ZeroDivisionError):
            await fail_while_reading(suite)
        await suite.wait_closed()


async def test_cancelling_the_reader_cancels_the_work() -> None:
    async with serving_script([SILENCE_S]) as suite:
        reader = asyncio.create_task(read(suite.stub.StreamChat(REQUEST), []))
        await suite.llm.opened.wait()
        reader.cancel()
        await suite.wait_closed()
        with pytest.raises(asyncio.CancelledError):
            await reader


async def test_a_status_that_is_not_ours_stays_what_it_is() -> None:
    async with serving_script([SILENCE_S]) as suite:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read(suite.stub.StreamChat(REQUEST, timeout=0.1), [])
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await suite.wait_closed()


async def test_a_peer_that_cannot_be_reached_is_an_unavailable_provider() -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        async with asyncio.timeout(50), open_channel(f"127.0.0.1:{unheard.getsockname()[1]}") as channel:
            stub = llm_pb2_grpc.LlmServiceStub(channel)
            with pytest.raises(ProviderUnavailable):
                async with reading(stub.StreamChat(REQUEST)) as deltas:
                    await anext(deltas)


async def test_a_unary_call_raises_what_the_service_raised() -> None:
    async with serving_script([Overloaded("no room")]) as suite:
        with pytest.raises(Overloaded, match="no room"), rpc_errors():
            await suite.stub.CountTokens(COUNT)
