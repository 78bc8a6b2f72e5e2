"""Chats that are served before the index has their logs, which is made behind, held by the test in the middle of it."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from headrace.errors import IndexIncomplete, NotFound, StaleLease
from headrace.streams import rpc_errors
from headrace.v1 import gates_pb2
from services.memory.data.retention import SameForAll, prune_chats
from services.memory.storage.files.backlog import Backlog, Flush, run_steps
from services.memory.storage.files.disk import Disk
from services.memory.storage.files.engine import open_files
from services.memory.storage.files.indexing.index_recovery import START_LOGS_MAX
from services.runtime.auth.identity import acting_as
from tests.support.memory.admin_cli import copies
from tests.support.memory.budgets import ADA, begin, claim
from tests.support.memory.engines import lose_index
from tests.support.memory.gates import approval
from tests.support.memory.serving import memory_over
from tests.support.memory.spend import charge, said, total
from tests.support.memory.webhooks import ADA as OPERATOR
from tests.support.memory.webhooks import URL
from tests.support.memory.writing import Memory, run_line

OLD_S = 1_000_000_000


@dataclass(slots=True)
class HeldSteps:
    """The work behind, which waits until the test lets it go on."""

    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, backlog: Backlog, is_behind: Callable[[], bool], flush: Flush) -> None:
        await self.go_on.wait()
        await run_steps(backlog, is_behind, flush)


@asynccontextmanager
async def serving_unindexed(folder: Path) -> AsyncGenerator[tuple[Memory, HeldSteps]]:
    """A service whose index has none of the folder's chats, and makes it when it is let."""
    lose_index(folder)
    held = HeldSteps()
    async with memory_over(folder, start_logs_max=0, run_backlog=held) as memory:
        yield memory, held


async def make_index(memory: Memory, held: HeldSteps) -> None:
    """Let the work go on to its end."""
    held.go_on.set()
    while (await memory.chats()).HasField("index_progress"):
        await asyncio.sleep(0.01)


def _set_time(path: Path, at_s: int) -> None:
    os.utime(path, (at_s, at_s))


async def make_charged(memory: Memory, *, ends: bool = True) -> tuple[str, str]:
    chat_id, run_id = await memory.begin_with(said(charge(nano_usd=1_500)), message="水车")
    if ends:
        await memory.append(chat_id, run_id, run_line())
    return chat_id, run_id


async def test_a_chat_is_served_by_its_id_and_lists_say_what_they_lack(folder: Path) -> None:
    async with memory_over(folder) as memory:
        chat_id, run_id = await make_charged(memory)
        other_id, _ = await make_charged(memory)
    async with serving_unindexed(folder) as (memory, held):
        listed = await memory.chats()
        assert (list(listed.chats), listed.index_progress.chats_done, listed.index_progress.chats) == ([], 0, 2)
        assert await memory.search("水车") == []
        assert (await memory.chat(chat_id=chat_id)).chat_id == chat_id
        assert (await memory.chat(chat_id=chat_id, without_events=True)).title == "水车"
        listed = await memory.chats()
        assert ([chat.chat_id for chat in listed.chats], listed.index_progress.chats_done) == ([chat_id], 1)
        assert [hit.chat_id for hit in await memory.search("水车")] == [chat_id]
        assert (await memory.chat(run_id=run_id)).chat_id == chat_id
        await make_index(memory, held)
        assert {chat.chat_id for chat in (await memory.chats()).chats} == {chat_id, other_id}
        assert len(await memory.search("水车")) == 2


async def test_what_is_appended_to_a_chat_that_is_not_indexed_counts_once(folder: Path) -> None:
    async with memory_over(folder) as memory:
        chat_id, _ = await make_charged(memory)
        await make_charged(memory)
    async with serving_unindexed(folder) as (memory, held):
        await memory.begin_with(said(charge(nano_usd=20)), run_line(), message="again", chat_id=chat_id)
        await make_index(memory, held)
        assert await total(memory) == 3_020
    lose_index(folder)
    async with memory_over(folder) as memory:
        assert await total(memory) == 3_020


async def test_a_chat_that_is_deleted_unindexed_is_gone_and_its_cost_is_not(folder: Path) -> None:
    async with memory_over(folder) as memory:
        chat_id, _ = await make_charged(memory)
        await make_charged(memory)
    async with serving_unindexed(folder) as (memory, held):
        await memory.delete(chat_id)
        with pytest.raises(NotFound):
            await memory.chat(chat_id=chat_id)
        await make_index(memory, held)
        assert len((await memory.chats()).chats) == 1
        assert await total(memory) == 3_000


async def test_nothing_is_decided_on_half_an_index(folder: Path) -> None:
    async with memory_over(folder) as memory:
        _, run_id = await make_charged(memory)
        with acting_as(ADA):
            await make_charged(memory)
    async with serving_unindexed(folder) as (memory, held):
        with acting_as(ADA):
            _, spending = await begin(memory)
            with pytest.raises(IndexIncomplete, match="0 of 2 chats") as refused:
                await claim(memory, spending, 9_000)
            with pytest.raises(IndexIncomplete):
                await total(memory)
        assert refused.value.retry_after_s
        assert refused.value.metadata == {"chatsDone": "0", "chats": "2"}
        for look in (memory.chat(run_id=run_id), memory.gate(run_id, "g1"), memory.export_gates()):
            with pytest.raises(IndexIncomplete):
                await look
        await make_index(memory, held)
        assert (await memory.chat(run_id=run_id)).chat_id
        with acting_as(ADA):
            assert await claim(memory, spending, 1_000) == 1_000
            assert await total(memory) == 1_500


async def test_logs_that_were_last_changed_before_a_budgets_period_do_not_hold_it_up(folder: Path) -> None:
    async with memory_over(folder) as memory:
        chat_id, _ = await make_charged(memory)
    _set_time(folder / f"{chat_id}.json", OLD_S)
    async with serving_unindexed(folder) as (memory, _):
        with acting_as(ADA):
            _, spending = await begin(memory)
            assert await claim(memory, spending, 9_000) == 9_000


async def test_a_run_that_had_not_ended_is_taken_over_once(folder: Path) -> None:
    async with memory_over(folder) as memory:
        chat_id, run_id = await make_charged(memory, ends=False)
        await make_charged(memory)
    async with serving_unindexed(folder) as (memory, held):
        assert await memory.list_unfinished() == []
        generation = await memory.acquire(chat_id, run_id, "one")
        assert generation > 0
        await make_index(memory, held)
        (found,) = await memory.list_unfinished()
        assert (found.run_id, found.owner, found.generation) == (run_id, "one", generation)
        with pytest.raises(StaleLease):
            await memory.acquire(chat_id, run_id, "two")
        await memory.append(chat_id, run_id, run_line(), generation=generation)
        assert await memory.list_unfinished() == []


async def test_a_line_that_a_crash_has_cut_is_set_aside_once_and_what_follows_stays(folder: Path) -> None:
    async with memory_over(folder) as memory:
        chat_id, _ = await make_charged(memory)
    log = folder / f"{chat_id}.json"
    whole = log.read_bytes()
    log.write_bytes(whole + b'{"_type":"query","chatId"')
    async with serving_unindexed(folder) as (memory, held):
        _, run_id = await memory.begin("again", chat_id)
        await make_index(memory, held)
        await memory.append(chat_id, run_id, run_line())
        assert (await memory.chat(run_id=run_id)).chat_id == chat_id
    assert (folder / f"{chat_id}.json.damaged").read_bytes() == b'{"_type":"query","chatId"'
    assert log.read_bytes().startswith(whole)
    assert log.read_bytes().count(b"\n") == whole.count(b"\n") + 2


async def test_gates_come_to_an_inbox_that_is_watched_while_the_index_is_made(folder: Path) -> None:
    async with memory_over(folder) as memory:
        await memory.begin_with(approval("g1", "write"))
    async with serving_unindexed(folder) as (memory, held), asyncio.timeout(30):
        assert (await memory.gates(scope="own")).HasField("index_progress")
        with rpc_errors():
            news = memory.stub.WatchGates(gates_pb2.WatchGatesRequest(scope="own"))
            assert (await anext(aiter(news))).HasField("list_begin")
            end = await anext(aiter(news))
            assert end.list_end.index_progress.chats == 1
            held.go_on.set()
            assert (await anext(aiter(news))).gate.state == "open"


async def test_a_webhook_is_made_but_not_changed_before_what_it_was_to_be_told_of_is_known(folder: Path) -> None:
    async with memory_over(folder) as memory:
        await make_charged(memory)
    async with serving_unindexed(folder) as (memory, held):
        with acting_as(OPERATOR):
            made = (await memory.call("CreateWebhook", url=URL)).webhook
            with pytest.raises(IndexIncomplete):
                await memory.call("UpdateWebhook", webhook_id=made.webhook_id, paused=True)
            await make_index(memory, held)
            changed = await memory.call("UpdateWebhook", webhook_id=made.webhook_id, paused=True)
    assert changed.webhook.paused


async def test_no_chat_is_pruned_and_no_blob_taken_for_an_orphan_before_all_are_known(folder: Path) -> None:
    async with memory_over(folder) as memory:
        chat_id, _ = await make_charged(memory)
        blob_id = await memory.put_blob(chat_id, b"\x89PNG\r\n\x1a\n")
    _set_time(folder / "blobs" / chat_id, OLD_S)
    lose_index(folder)
    disk, held = Disk(folder), HeldSteps()
    async with open_files(disk, start_logs_max=0, run_backlog=held) as engine:
        for clean_up in (engine.blobs.delete_orphans(1.0), prune_chats(engine, SameForAll(0.0))):
            with pytest.raises(IndexIncomplete):
                await clean_up
        held.go_on.set()
        await engine.index.wait_until_complete()
        assert await engine.blobs.delete_orphans(1.0) == []
        assert engine.blobs.find(chat_id, blob_id) is not None
    disk.close()


async def test_a_service_that_is_killed_meanwhile_goes_on_where_it_was(folder: Path) -> None:
    await copies(partial(memory_over, folder), folder, START_LOGS_MAX + 1_000)
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.memory.storage.files.serve_killed", str(folder)), stdout=asyncio.subprocess.PIPE
    )
    assert program.stdout is not None
    async with asyncio.timeout(60):
        while not (line := await program.stdout.readline()).startswith(b"done"):
            assert line, "it ended"
    done = int(line.split()[1])
    program.send_signal(signal.SIGKILL)
    await program.wait()
    held = HeldSteps()
    async with memory_over(folder, start_logs_max=0, run_backlog=held) as memory:
        left = (await memory.chats()).index_progress.chats
        assert 0 < left <= START_LOGS_MAX + 1_000 - done
        await make_index(memory, held)
    with suppress(ProcessLookupError):
        program.kill()
