"""Two services over one database: what one is erasing the other refuses, and what one redacts the other shows
redacted."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import asyncpg
import pytest

from headrace.errors import Erasing, NotFound, Overloaded
from headrace.v1 import data_pb2
from services.memory.data.erasures import KNOWN_S
from services.runtime.auth.identity import acting_as
from services.runtime.clock import CLOCK
from tests.support.memory import people
from tests.support.memory.engines import ModelledTables
from tests.support.memory.people import ADA, ADMIN, BOB, OWNER
from tests.support.memory.serving import memory_in
from tests.support.memory.writing import Memory, new_id
from tests.support.postgresql import connected, needs_postgres
from trials.simulation.postgres.server import Server as ModelServer

REFUSED_WITHIN_S = 30.0
"""Usually a second or two; the machine may be busy."""

HELD_MS = 2000
"""How long a claim is held in a test; the machine may be busy for two thirds of it."""


@needs_postgres
async def test_data_erased_by_one_service_is_neither_accepted_nor_shown_by_the_other(database_url: str) -> None:
    async with memory_in(database_url) as memory, memory_in(database_url, tells=False) as other_memory:
        ada, bob = await people.furnish(memory, ADA), await people.furnish(memory, BOB)
        await people.share(memory, BOB, bob["chat"], "user:ada")
        await people.ask(other_memory, ADA, people.mark(ADA, "shared"), bob["chat"])
        with acting_as(ADA):
            await other_memory.chat(chat_id=ada["chat"])  # both chats are cached now
        erasure = await people.request_erasure(memory, user="ada")
        async with asyncio.timeout(REFUSED_WITHIN_S):
            with acting_as(ADA):
                while True:
                    try:
                        await other_memory.remember("more")
                    except Erasing:
                        break
                    await asyncio.sleep(0.05)
        await people.run_erasure(memory, erasure.erasure_id)
        with acting_as(ADA):
            with pytest.raises(NotFound):
                await other_memory.chat(chat_id=ada["chat"])
            assert not await other_memory.list_facts()
        with acting_as(BOB):
            chat = await other_memory.chat(chat_id=bob["chat"])
            response = chat.SerializeToString()
            assert b"[erased]" in response
            assert people.mark(ADA, "shared").encode() not in response
            await people.ask(other_memory, BOB, "it goes on", bob["chat"])


@needs_postgres
async def test_a_repeated_erasure_request_is_answered_once_nothing_more_is_accepted(database_url: str) -> None:
    """Found by seed 48786 of trials/simulation: the first reply was lost, and a fact was stored after the second."""
    async with memory_in(database_url, tells=False) as memory, memory_in(database_url, tells=False) as other_memory:
        request_id = new_id()
        first = await people.request_erasure(memory, user="ada", request_id=request_id)
        assert await people.request_erasure(other_memory, user="ada", request_id=request_id) == first
        with acting_as(ADA), pytest.raises(Erasing):
            await other_memory.remember("more")


async def test_a_receipt_waits_for_requests_accepted_before_the_erasure_was_known(modelled: ModelServer) -> None:
    async with ModelledTables(modelled).memory(receipt_after_s=8.0) as memory:
        await people.furnish(memory, ADA)
        erasure_id = (await people.request_erasure(memory, user="ada")).erasure_id
        waiting = await erase_and_finish(memory, erasure_id)
        assert 0 < waiting.wait_ms <= 8000
        assert (waiting.erasure.state, people.count(waiting.erasure)["facts"]) == ("going", 1)
        assert "the receipt waits" in waiting.erasure.problem
        with acting_as(ADA), pytest.raises(Erasing):
            await memory.remember("more")
        await asyncio.sleep(waiting.wait_ms / 1000)
        response = await erase_and_finish(memory, erasure_id)
        assert (response.wait_ms, response.erasure.state, response.erasure.problem) == (0, "done", "")


async def erase_and_finish(memory: Memory, erasure_id: str) -> data_pb2.FinishErasureResponse:
    await people.erase_stored(memory, erasure_id)
    return await memory.call_as(None, "FinishErasure", erasure_id=erasure_id, owner=OWNER)


class JumpingClock:
    """The machine's clock, which may be set forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        self.time_ns, self.thread_time = time.time_ns, time.thread_time

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_s


async def test_no_data_is_accepted_while_the_users_being_erased_are_unknown(modelled: ModelServer) -> None:
    clock = JumpingClock()
    CLOCK.set(clock)
    async with ModelledTables(modelled).memory(patience_s=60.0) as memory:
        modelled.crash(asyncpg.ConnectionDoesNotExistError("the server has crashed"))
        clock.ahead_s += KNOWN_S
        with acting_as(ADA), pytest.raises(Overloaded, match="who is being erased"):
            await memory.remember("something")
        modelled.start()
        async with asyncio.timeout(REFUSED_WITHIN_S):
            while True:
                try:
                    await memory.acting_as(ADA).remember("something")
                    break
                except Overloaded:
                    await asyncio.sleep(0.1)


@needs_postgres
async def test_a_last_step_that_takes_longer_than_its_claim_keeps_the_claim(database_url: str) -> None:
    """Clearing large tables takes that long; here another connection has locked one of them."""
    async with memory_in(database_url, held_ms=HELD_MS) as memory, holding_table(database_url) as release:
        await people.furnish(memory, ADA)
        erasure = await people.request_erasure(memory, user="ada")
        await people.erase_stored(memory, erasure.erasure_id)
        finishing = asyncio.create_task(people.finish(memory, erasure.erasure_id))
        await asyncio.sleep(0.3)  # it has its claim prolonged
        until_s = time.monotonic() + 2.5 * HELD_MS / 1000
        while time.monotonic() < until_s:
            assert not await people.claim(memory, "another")
            assert not finishing.done()
            await asyncio.sleep(0.1)
        await release()
        assert (await finishing).state == "done"
        listed = await memory.call_as(ADMIN, "ListAudit", event="user.erased")
        assert len(listed.lines) == 1


@asynccontextmanager
async def holding_table(url: str) -> AsyncGenerator[Callable[[], Awaitable[None]]]:
    """Prevent others from clearing the rows of deleted chats, until released."""
    async with connected(url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("LOCK TABLE lines IN SHARE UPDATE EXCLUSIVE MODE")
        yield transaction.rollback
