"""Chats that are served before the index has read their logs; the test holds the indexing in the background."""

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
    """The background indexing, which waits until the test sets `go_on`."""

    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, backlog: Backlog, is_behind: Callable[[], bool], flush: Flush) -> None:
        await self.go_on.wait()
        await run_steps(backlog, is_behind, flush)


@asynccontextmanager
async def serving_unindexed(folder: Path) -> AsyncGenerator[tuple[Memory, HeldSteps]]:
    """Serve a folder whose index has none of its chats, and is filled once the test allows it."""
    lose_index(folder)
    held = HeldSteps()
    async with memory_over(folder, start_logs_max=0, run_backlog=held) as memory:
        yield memory, held


async def make_index(memory: Memory, held: HeldSteps) -> None:
    """Let the indexing run to its end."""
    held.go_on.set()
    while (await memory.chats()).HasField("index_progress"):
        await asyncio.sleep(0.01)


def _set_time(path: Path, at_s: int) -> None:
    os.utime(path, (at_s, at_s))


async def make_charged_chat(memory: Memory, *, ends: bool = True) -> tuple[str, str]:
    chat_id, run_id = await memory.begin_with(said(charge(nano_usd=1_500)), message="水车")
    if ends:
        await memory.append(chat_id, run_id, run_line())
    return chat_id, run_id


async def test_an_unindexed_chat_is_served_by_its_id_and_lists_report_the_progress(folder: Path) -> None:
    async with memory_over(folder) as memory:
        chat_id, run_id = await make_charged_chat(memory)
        other_id, _ = await make_charged_chat(memory)
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


async def test_an_append_to_an_unindexed_chat_is_charged_once(folder: Path) -> None:
    async with memory_over(folder) as memory:
        chat_id, _ = await make_charged_chat(memory)
        await make_charged_chat(memory)
    async with serving_unindexed(folder) as (memory, held):
        await memory.begin_with(said(charge(nano_usd=20)), run_line(), message="again", chat_id=chat_id)
        await make_index(memory, held)
        assert await total(memory) == 3_020
    lose_index(folder)
    async with memory_over(folder) as memory:
        assert await total(memory) == 3_020


async def test_an_unindexed_chat_can_be_deleted_and_its_cost_is_kept(folder: Path) -> None:
    async with memory_over(folder) as memory:
        chat_id, _ = await make_charged_chat(memory)
        await make_charged_chat(memory)
    async with serving_unindexed(folder) as (memory, held):
        await memory.delete(chat_id)
        with pytest.raises(NotFound):
            await memory.chat(chat_id=chat_id)
        await make_index(memory, held)
        assert len((await memory.chats()).chats) == 1
        assert await total(memory) == 3_000


async def test_calls_that_need_the_whole_index_are_refused_until_it_is_complete(folder: Path) -> None:
    async with memory_over(folder) as memory:
        _, run_id = await make_charged_chat(memory)
        with acting_as(ADA):
            await make_charged_chat(memory)
    async with serving_unindexed(folder) as (memory, held):
        with acting_as(ADA):
            _, run_id_of_claim = await begin(memory)
            with pytest.raises(IndexIncomplete, match="0 of 2 chats") as refused:
                await claim(memory, run_id_of_claim, 9_000)
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
            assert await claim(memory, run_id_of_claim, 1_000) == 1_000
            assert await total(memory) == 1_500


async def test_logs_older_than_a_budgets_period_do_not_delay_it(folder: Path) -> None:
    async with memory_over(folder) as memory:
        chat_id, _ = await make_charged_chat(memory)
    _set_time(folder / f"{chat_id}.json", OLD_S)
    async with serving_unindexed(folder) as (memory, _):
        with acting_as(ADA):
            _, claim_run_id = await begin(memory)
            assert await claim(memory, claim_run_id, 9_000) == 9_000


async def test_an_unfinished_run_is_taken_over_once(folder: Path) -> None:
    async with memory_over(folder) as memory:
        chat_id, run_id = await make_charged_chat(memory, ends=False)
        await make_charged_chat(memory)
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


async def test_a_line_cut_by_a_crash_is_set_aside_once_and_later_lines_stay(folder: Path) -> None:
    async with memory_over(folder) as memory:
        chat_id, _ = await make_charged_chat(memory)
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


async def test_a_watched_inbox_receives_gates_while_the_index_is_made(folder: Path) -> None:
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


async def test_a_webhook_can_be_created_but_not_changed_before_its_events_are_known(folder: Path) -> None:
    async with memory_over(folder) as memory:
        await make_charged_chat(memory)
    async with serving_unindexed(folder) as (memory, held):
        with acting_as(OPERATOR):
            created = (await memory.call("CreateWebhook", url=URL)).webhook
            with pytest.raises(IndexIncomplete):
                await memory.call("UpdateWebhook", webhook_id=created.webhook_id, paused=True)
            await make_index(memory, held)
            changed = await memory.call("UpdateWebhook", webhook_id=created.webhook_id, paused=True)
    assert changed.webhook.paused


async def test_nothing_is_pruned_and_no_blob_is_an_orphan_before_all_chats_are_known(folder: Path) -> None:
    async with memory_over(folder) as memory:
        chat_id, _ = await make_charged_chat(memory)
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


async def test_a_service_that_is_killed_during_indexing_continues_where_it_was(folder: Path) -> None:
    await copies(partial(memory_over, folder), folder, START_LOGS_MAX + 1_000)
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.memory.storage.files.serve_killed", str(folder)), stdout=asyncio.subprocess.PIPE
    )
    assert program.stdout is not None
    async with asyncio.timeout(60):
        while not (line := await program.stdout.readline()).startswith(b"done"):
            assert line, "it ended"
    indexed_count = int(line.split()[1])
    program.send_signal(signal.SIGKILL)
    await program.wait()
    held = HeldSteps()
    async with memory_over(folder, start_logs_max=0, run_backlog=held) as memory:
        remaining = (await memory.chats()).index_progress.chats
        assert 0 < remaining <= START_LOGS_MAX + 1_000 - indexed_count
        await make_index(memory, held)
    with suppress(ProcessLookupError):
        program.kill()
