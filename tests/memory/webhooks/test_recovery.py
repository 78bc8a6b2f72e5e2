"""A folder whose index is behind its logs, or lost: what lines have caused is told, and not told again."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from services.memory.storage.files.outbox import NAME
from services.memory.storage.records.webhooks import DELIVERED, WAITING
from tests.support.memory.webhooks import Open, Writer, create, deliver, list_deliveries, wait_for_states
from tests.support.webhook_receiver import Receiver


def index_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("index.sqlite*"))


def copy_files(source: Path, target: Path) -> None:
    """Have in `target` the index and the outbox that `source` has."""
    target.mkdir(exist_ok=True)
    for path in [*index_files(target), *target.glob(f"{NAME}*")]:
        path.unlink()
    for path in [*index_files(source), *source.glob(f"{NAME}*")]:
        shutil.copy(path, target)


async def test_a_line_that_the_index_never_saw_is_told_after_the_start(
    open_store: Open, folder: Path, receiver: Receiver, tmp_path: Path
) -> None:
    async with open_store() as engine:
        webhook, _ = await create(engine, receiver)
    copy_files(folder, tmp_path / "before")
    async with open_store() as engine:
        await Writer(engine).run()
    # As after a kill between the line's sync and the index: the log has it, both files do not.
    copy_files(tmp_path / "before", folder)
    async with open_store() as engine, deliver(engine, receiver):
        await receiver.wait_for(1)
        await wait_for_states(engine, webhook, DELIVERED)


async def test_an_index_that_is_made_anew_tells_nothing_again(
    open_store: Open, folder: Path, receiver: Receiver
) -> None:
    async with open_store() as engine:
        old = await Writer(engine).run()  # before there is a webhook
        await asyncio.sleep(0.002)  # times are in milliseconds: what is of the same one is told
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
        assert await engine.webhooks.list_own("default") == []
        assert await engine.webhooks.find_next(0) == 0
    assert not (folder / NAME).exists()
