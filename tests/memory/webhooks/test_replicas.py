"""Several that deliver: one is killed between a delivery and its record, two have one database."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from services.memory.storage.records.webhooks import DELIVERED
from services.memory.webhooks.deliverer import CLAIM_MS
from services.runtime.clock import CLOCK
from tests.support.memory.engines import Files, Tables, open_engine
from tests.support.memory.webhooks import Writer, create, deliver, wait_for_states
from tests.support.postgresql import needs_postgres

if TYPE_CHECKING:
    from tests.support.memory.engines import Kept
    from tests.support.memory.webhooks import Open
    from tests.support.webhook_receiver import Post, Receiver


class Later:
    """The machine's clocks, when a claim is over."""

    def time_ns(self) -> int:
        return time.time_ns() + 2 * CLAIM_MS * 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def thread_time(self) -> float:
        return time.thread_time()


@pytest.mark.engines
async def test_who_is_killed_before_the_record_has_delivered_twice_and_lost_nothing(
    kept: Kept, open_store: Open, receiver: Receiver
) -> None:
    async with open_store() as engine:
        webhook, _ = await create(engine, receiver)
        await Writer(engine).run()
    assert isinstance(kept, Files | Tables)
    place = str(kept.folder) if isinstance(kept, Files) else kept.url
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.memory.webhooks.killed", place)

    def kill(post: Post) -> int:
        if process.returncode is None:
            process.kill()
        return 200

    receiver.answer = kill
    await receiver.wait_for(1)
    await process.wait()
    token = CLOCK.set(Later())
    try:
        async with open_store() as engine, deliver(engine, receiver):
            await receiver.wait_for(2)
            [delivery] = await wait_for_states(engine, webhook, DELIVERED)
    finally:
        CLOCK.reset(token)
    assert [post.event_id for post in receiver.posts] == [delivery.event_id] * 2
    assert receiver.posts[0].body == receiver.posts[1].body


@needs_postgres
async def test_two_replicas_do_not_deliver_the_same(tables: Tables, receiver: Receiver) -> None:
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(open_engine(tables)) for _ in range(2)]
        webhook, _ = await create(engines[0], receiver)
        for engine in engines:
            await stack.enter_async_context(deliver(engine, receiver))
        chats = await asyncio.gather(*(Writer(engines[index % 2]).run() for index in range(30)))
        await wait_for_states(engines[0], webhook, *[DELIVERED] * 30)
    assert sorted(post.event["subject"] for post in receiver.posts) == sorted(chats)


@needs_postgres
async def test_what_another_replica_has_stored_and_left_is_found(tables: Tables, receiver: Receiver) -> None:
    async with open_engine(tables) as writer, open_engine(tables) as engine, deliver(engine, receiver):
        webhook, _ = await create(writer, receiver)
        await Writer(writer).run()  # who has stored it delivers nothing
        await receiver.wait_for(1)
        await wait_for_states(engine, webhook, DELIVERED)


@pytest.fixture
def tables(database_url: str) -> Tables:
    return Tables(database_url)
