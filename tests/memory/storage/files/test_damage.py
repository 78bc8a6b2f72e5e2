"""Damage of one chat or record, while all others are served.

Lines that are valid JSON but fit no view, of older versions or edited by hand; gates of damaged chats, which stay
listed; and bytes that a disk has damaged in the files next to the logs.
"""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import LogDamaged
from headrace.v1 import agent_pb2, common_pb2
from services.memory.storage.files.indexing.index_recovery import INDEX_NAME, SPEND
from tests.support.memory.admin_cli import tool
from tests.support.memory.engines import Serve, lose_index, open_keys
from tests.support.memory.gates import ids, opening, submitted
from tests.support.memory.log_editing import without_checksums
from tests.support.memory.messages import content, user
from tests.support.memory.schedules import DAY, HOUR, Clock, create, get, list_due, record
from tests.support.memory.serving import memory_over
from tests.support.memory.spend import charge, said, total
from tests.support.memory.writing import event_line, events, new_id, query_line, read_pages, run_line, step_line

HUGE = b"123456789012345678901234567890"

ODD = [
    (0, b'"message":"hello"', b'"message":{"no":"text"}'),
    (0, b'"updatedAt":1', b'"updatedAt":' + HUGE),
    (1, b'"to":7', b'"to":' + HUGE),
    (2, b'"seq":8', b'"seq":' + HUGE),
    (2, b'"seq":8', b'"seq":"8"'),
    (2, b'"expiresAt":9', b'"expiresAt":' + HUGE),
    (2, b'"gateId":"g1"', b'"gateId":["g1"]'),
    (3, b'"error":{"code":"INTERNAL"', b'"error":{"code":5'),
    (3, b'"modelCalls":1', b'"modelCalls":"one"'),
    (3, b'"modelCalls":1', b'"modelCalls":' + HUGE),
]


def list_cases() -> Iterator[Any]:
    """Return each line with a new index and with the old one; `make check` runs half of them."""
    for number, (line, is_index_new) in enumerate(product(ODD, (True, False))):
        marks = [pytest.mark.nightly] if number % 4 in (1, 2) else []
        yield pytest.param(*line, is_index_new, marks=marks)


@pytest.mark.parametrize(("index", "before", "after", "is_index_new"), list(list_cases()))
async def test_a_malformed_line_damages_only_its_own_chat(
    index: int, before: bytes, after: bytes, is_index_new: bool, serve: Serve, folder: Path
) -> None:
    async with serve() as memory:
        chat_id, run_id = await memory.begin_with(step_line(content("a", events=events(7))))
        gate = agent_pb2.GateOpen(gate_id="g1", kind="approval", expires_at=9)
        await memory.append(chat_id, run_id, event_line(seq=8, gate_open=gate))
        await memory.append(chat_id, run_id, run_line("failed", error=common_pb2.Failure(code="INTERNAL")))
        other, _ = await memory.begin_and_end("another")
    path = folder / f"{chat_id}.json"
    log = without_checksums(path.read_bytes()).splitlines()
    assert before in log[index]
    log[index] = log[index].replace(before, after)
    path.write_bytes(b"\n".join(log) + b"\n")
    if is_index_new:
        (folder / INDEX_NAME).unlink()
    async with serve() as memory:
        assert other in [chat.chat_id for chat in (await memory.chats()).chats]
        await memory.begin("next", other)
        with pytest.raises(LogDamaged):
            await memory.append(chat_id, run_id, run_line())
        await memory.chat(chat_id=chat_id)
    assert f"{chat_id}: line {index + 1} " in await tool(folder, "verify", exit_code=1)


async def test_chats_with_impossible_times_are_listed_page_by_page(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        chats = [(await memory.begin_and_end())[0] for _ in range(4)]
    for chat_id, time in zip(chats, (b"-5", b"-6", b"1500000000000000", b"1500000000000001"), strict=True):
        path = folder / f"{chat_id}.json"
        path.write_bytes(re.sub(rb'"updatedAt":\d+', b'"updatedAt":' + time, without_checksums(path.read_bytes())))
    (folder / INDEX_NAME).unlink()
    async with serve() as memory:
        listed = [chat.chat_id for page in await read_pages(memory, "ListChats", "chats", 1) for chat in page]
        assert listed == [chats[n] for n in (3, 2, 0, 1)]


LINES = [
    "the first query",
    "its end",
    "the query of the run that waits",
    "a step",
    "the opening of form_1",
    "a step between",
    "the opening of form_2",
    "the opening of form_3",
    "the answer to form_3",
    "a step behind",
]


LOST = {"the opening of form_1": {"form_1"}, "the opening of form_2": {"form_2"}}
"""Gates that are lost with a line that cannot be read."""


@pytest.mark.parametrize("is_index_new", [True, False], ids=["index made anew", "index kept"])
@pytest.mark.parametrize("damaged", LINES)
async def test_gates_of_a_damaged_chat_stay_listed(
    damaged: str, is_index_new: bool, serve: Serve, folder: Path
) -> None:
    async with serve() as memory:
        chat_id, _ = await memory.begin_with(run_line())
        await memory.append(chat_id, waiting := new_id(), query_line("go on"))
        for line in (
            step_line(user("a")),
            opening("form_1"),
            step_line(user("b")),
            opening("form_2"),
            opening("form_3"),
            submitted("form_3"),
            step_line(user("c")),
        ):
            await memory.append(chat_id, waiting, line)
        assert await ids(memory) == ["form_1", "form_2"]
    path = folder / f"{chat_id}.json"
    log = path.read_bytes().splitlines(keepends=True)
    assert len(log) == len(LINES)
    log[LINES.index(damaged)] = b"\xff\n"
    path.write_bytes(b"".join(log))
    if is_index_new:
        lose_index(folder)
    expected = {"form_1", "form_2"} - LOST.get(damaged, set())
    if damaged == "the answer to form_3":
        expected.add("form_3")  # nothing that can be read says that it was answered
    async with serve() as memory:
        listed = {gate.gate_id: gate for gate in (await memory.gates()).gates}
        assert set(listed) == expected
        assert {gate.requester for gate in listed.values()} == {"default"}
        assert (await memory.gate(waiting, next(iter(expected)))).chat_id == chat_id


def harm(path: Path, before: bytes, after: bytes) -> None:
    data = path.read_bytes()
    assert before in data
    path.write_bytes(data.replace(before, after))


def find_file(folder: Path) -> Path:
    (path,) = (path for path in folder.iterdir() if path.is_file() and path.suffix in (".json", ".jsonl"))
    return path


async def test_unreadable_costs_of_a_deleted_chat_are_ignored(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        for nano_usd in (100, 20, 3):
            chat_id, _ = await memory.begin_with(said(charge(nano_usd=nano_usd)), run_line())
            await memory.delete(chat_id)
    path = find_file(folder / SPEND)
    first, second, third = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first.replace(b"writer", b"wr\xefter") + second.replace(b'"tenant"', b'"lodger"') + third)
    (folder / INDEX_NAME).unlink()
    async with serve() as memory:
        assert await total(memory) == 3


async def test_an_unreadable_data_key_is_ignored(folder: Path) -> None:
    async with memory_over(folder, open_keys=open_keys) as memory:
        await memory.begin_and_end()
    (path,) = (folder / "encryption" / "keys").glob("*.json")
    harm(path, b'"tenant":"', b'"tenant":"\xff')
    async with memory_over(folder, open_keys=open_keys) as memory:
        assert not (await memory.grants()).grants


@pytest.mark.parametrize("passed_ms", [HOUR, DAY])
async def test_a_schedule_with_an_unknown_zone_does_not_delay_others(
    passed_ms: int, serve: Serve, folder: Path
) -> None:
    """The time zone database removes names now and then."""
    clock = Clock()
    async with serve(clock=clock) as memory:
        odd = await create(memory, cron="0 * * * *", catch_up=True, time_zone="Europe/Berlin")
        await create(memory, cron="0 * * * *", time_zone="Europe/Berlin")
    with closing(sqlite3.connect(folder / "records.sqlite")) as database, database:
        database.execute("UPDATE schedules SET data = CAST(replace(data, 'Europe/Berlin', 'Europe/Bonn__') AS blob)")
    async with serve(clock=clock) as memory:
        clock.pass_to(odd.next_at - 1)
        other = await create(memory, once_at=odd.next_at + passed_ms)
        clock.pass_to(odd.next_at + passed_ms)
        due = (await list_due(memory)).due
        assert other.schedule_id in [item.schedule.schedule_id for item in due]
        for item in due:
            await record(memory, item)
        assert not (await list_due(memory)).due
        assert (await get(memory, odd.schedule_id)).next_at == 0
