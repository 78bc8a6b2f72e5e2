"""Stream readers that fail, are cancelled, or receive a foreign status; tests/test_client.py has the other cases."""

import asyncio

import grpc
import pytest

from headrace.streams import reading
from tests.support.scripted_llm import REQUEST, SILENCE_S, Suite, read, serving_script


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


async def test_a_foreign_status_is_raised_unchanged() -> None:
    async with serving_script([SILENCE_S]) as suite:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read(suite.stub.StreamChat(REQUEST, timeout=0.1), [])
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await suite.wait_closed()
