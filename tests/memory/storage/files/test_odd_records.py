"""Bytes that a disk has damaged, in what is kept beside the logs: memory starts, and the rest is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.memory.storage.files.indexing.index_recovery import INDEX_NAME, SPEND
from tests.support.memory.agent_versions import put
from tests.support.memory.engines import Serve, open_keys
from tests.support.memory.schedules import DAY, HOUR, Clock, create, get, list_due, record
from tests.support.memory.serving import memory_over
from tests.support.memory.spend import charge, said, total
from tests.support.memory.writing import run_line


def harm(path: Path, before: bytes, after: bytes) -> None:
    data = path.read_bytes()
    assert before in data
    path.write_bytes(data.replace(before, after))


def find_file(folder: Path) -> Path:
    (path,) = (path for path in folder.iterdir() if path.is_file() and path.suffix in (".json", ".jsonl"))
    return path


async def test_a_fact_with_a_byte_that_is_no_text_is_left_out(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        for text in ("likes granite", "likes slate", "likes basalt"):
            await memory.remember(text)
    harm(find_file(folder / "facts"), b"slate", b"sl\xe1te")
    async with serve() as memory:
        assert [fact.text for fact in await memory.list_facts()] == ["likes basalt", "likes granite"]


async def test_costs_of_a_deleted_chat_that_cannot_be_read_are_left_out(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        for nano_usd in (100, 20, 3):
            chat_id, run_id = await memory.begin()
            await memory.append(chat_id, run_id, said(charge(nano_usd=nano_usd)), run_line())
            await memory.delete(chat_id)
    path = find_file(folder / SPEND)
    first, second, third = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first.replace(b"writer", b"wr\xefter") + second.replace(b'"tenant"', b'"lodger"') + third)
    (folder / INDEX_NAME).unlink()
    async with serve() as memory:
        assert await total(memory) == 3


async def test_a_version_of_an_agent_whose_line_is_damaged_is_left_out(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        await put(memory, b"{}")
    (path,) = (folder / "agents" / "versions").iterdir()
    harm(path, b'"agentKey":"', b'"agentKey":"\xff')
    async with serve() as memory:
        assert await put(memory, b"[]") == 2


async def test_a_data_key_that_cannot_be_read_is_left_out(folder: Path) -> None:
    async with memory_over(folder, open_keys=open_keys) as memory:
        await memory.begin_and_end()
    (path,) = (folder / "encryption" / "keys").glob("*.json")
    harm(path, b'"tenant":"', b'"tenant":"\xff')
    async with memory_over(folder, open_keys=open_keys) as memory:
        assert not (await memory.grants()).grants


@pytest.mark.parametrize("passed_ms", [HOUR, DAY])
async def test_a_schedule_whose_zone_is_no_more_keeps_no_other_from_its_time(
    passed_ms: int, serve: Serve, folder: Path
) -> None:
    """The database of zones loses names now and then."""
    clock = Clock()
    async with serve(clock=clock) as memory:
        odd = await create(memory, cron="0 * * * *", catch_up=True, time_zone="Europe/Berlin")
        await create(memory, cron="0 * * * *", time_zone="Europe/Berlin")
    for path in (folder / "schedules").iterdir():
        path.write_bytes(path.read_bytes().replace(b"Europe/Berlin", b"Europe/Bonn__"))
    async with serve(clock=clock) as memory:
        clock.pass_to(odd.next_at - 1)
        other = await create(memory, once_at=odd.next_at + passed_ms)
        clock.pass_to(odd.next_at + passed_ms)
        due = (await list_due(memory)).due
        assert other.schedule_id in [one.schedule.schedule_id for one in due]
        for one in due:
            await record(memory, one)
        assert not (await list_due(memory)).due
        assert (await get(memory, odd.schedule_id)).next_at == 0
