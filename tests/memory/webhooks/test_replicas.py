"""Several deliverers: one is killed between a delivery and its record, and two share a database. And folders whose
index lags behind the logs or is lost: events are delivered, and not delivered again.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from services.memory.storage.files.outbox import NAME
from services.memory.storage.records.webhooks import DELIVERED, WAITING
from services.memory.webhooks.deliverer import CLAIM_MS
from services.runtime.clock import CLOCK
from tests.support.memory.clocks import Later
from tests.support.memory.engines import Files, Tables, open_engine
from tests.support.memory.webhooks import Open, Writer, create, deliver, list_deliveries, wait_for_states
from tests.support.postgresql import needs_postgres
from tests.support.webhook_receiver import Receiver

if TYPE_CHECKING:
    from tests.support.memory.engines import Kept
    from tests.support.webhook_receiver import Post


DAY_MS = 86_400_000


@pytest.mark.engines("postgres")
async def test_a_deliverer_killed_before_recording_delivers_twice_and_loses_nothing(
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
    token = CLOCK.set(Later(days=2 * CLAIM_MS / DAY_MS))
    try:
        async with open_store() as engine, deliver(engine, receiver):
            await receiver.wait_for(2)
            [delivery] = await wait_for_states(engine, webhook, DELIVERED)
    finally:
        CLOCK.reset(token)
    assert [post.event_id for post in receiver.posts] == [delivery.event_id] * 2
    assert receiver.posts[0].body == receiver.posts[1].body


@needs_postgres
async def test_two_replicas_do_not_deliver_the_same_event(tables: Tables, receiver: Receiver) -> None:
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(open_engine(tables)) for _ in range(2)]
        webhook, _ = await create(engines[0], receiver)
        for engine in engines:
            await stack.enter_async_context(deliver(engine, receiver))
        chats = await asyncio.gather(*(Writer(engines[index % 2]).run() for index in range(30)))
        await wait_for_states(engines[0], webhook, *[DELIVERED] * 30)
    assert sorted(post.event["subject"] for post in receiver.posts) == sorted(chats)


@needs_postgres
async def test_an_event_stored_by_a_replica_that_does_not_deliver_is_found(tables: Tables, receiver: Receiver) -> None:
    async with open_engine(tables) as writer, open_engine(tables) as engine, deliver(engine, receiver):
        webhook, _ = await create(writer, receiver)
        await Writer(writer).run()  # this service delivers nothing
        await receiver.wait_for(1)
        await wait_for_states(engine, webhook, DELIVERED)


@pytest.fixture
def tables(database_url: str) -> Tables:
    return Tables(database_url)


def index_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("index.sqlite*"))


def copy_files(source: Path, target: Path) -> None:
    """Replace the index and the outbox in `target` by those of `source`."""
    target.mkdir(exist_ok=True)
    for path in [*index_files(target), *target.glob(f"{NAME}*")]:
        path.unlink()
    for path in [*index_files(source), *source.glob(f"{NAME}*")]:
        shutil.copy(path, target)


async def test_the_event_of_an_unindexed_line_is_delivered_after_the_start(
    open_store: Open, folder: Path, receiver: Receiver, tmp_path: Path
) -> None:
    async with open_store() as engine:
        webhook, _ = await create(engine, receiver)
    copy_files(folder, tmp_path / "before")
    async with open_store() as engine:
        await Writer(engine).run()
    # As after a kill between the sync of the line and that of the index: the log has it, both files do not.
    copy_files(tmp_path / "before", folder)
    async with open_store() as engine, deliver(engine, receiver):
        await receiver.wait_for(1)
        await wait_for_states(engine, webhook, DELIVERED)


async def test_a_rebuilt_index_sends_nothing_again(open_store: Open, folder: Path, receiver: Receiver) -> None:
    async with open_store() as engine:
        old = await Writer(engine).run()  # before there is a webhook
        await asyncio.sleep(0.002)  # times are in milliseconds: an event of the same one would be sent
        webhook, _ = await create(engine, receiver)
        async with deliver(engine, receiver):
            for _ in range(3):
                await Writer(engine).run()
            await wait_for_states(engine, webhook, *[DELIVERED] * 3)
        await Writer(engine).run(old)
    for path in index_files(folder):
        path.unlink()
    async with open_store() as engine:
        rows = await list_deliveries(engine, webhook)
        assert sorted(row.state for row in rows) == sorted([*[DELIVERED] * 3, WAITING])
        assert [row.subject for row in rows if row.state == WAITING] == [old]
        async with deliver(engine, receiver):
            await wait_for_states(engine, webhook, *[DELIVERED] * 4)
    assert len(receiver.posts) == len({post.event_id for post in receiver.posts}) == 4


async def test_a_folder_without_webhooks_has_no_file_of_them(open_store: Open, folder: Path) -> None:
    async with open_store() as engine:
        await Writer(engine).run()
        assert await engine.records.webhooks.list_own("default") == []
        assert await engine.records.webhooks.find_next(0) == 0
    assert not (folder / NAME).exists()
