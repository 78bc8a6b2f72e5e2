"""Lines that are JSON, and hold what no view can take, of older versions or edited by hand: damage of their chat."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import LogDamaged
from headrace.v1 import agent_pb2, common_pb2
from services.memory.storage.files.indexing.index_recovery import INDEX_NAME
from tests.support.memory.admin_cli import tool
from tests.support.memory.engines import Serve
from tests.support.memory.log_editing import without_checksums
from tests.support.memory.writing import content, event_line, events, run_line, step_line

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
    """Return each line with a new index and with the old one; the check has them by turns."""
    for number, (line, is_index_new) in enumerate(product(ODD, (True, False))):
        marks = [pytest.mark.nightly] if number % 4 in (1, 2) else []
        yield pytest.param(*line, is_index_new, marks=marks)


@pytest.mark.parametrize(("index", "before", "after", "is_index_new"), [*list_cases()])
async def test_an_odd_line_is_damage_of_its_own_chat(
    index: int, before: bytes, after: bytes, is_index_new: bool, serve: Serve, folder: Path
) -> None:
    async with serve() as memory:
        chat_id, run_id = await memory.begin()
        await memory.append(chat_id, run_id, step_line(content("a", events=events(7))))
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


async def test_chats_of_times_that_no_date_has_come_in_pages(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        chats = [(await memory.begin_and_end())[0] for _ in range(4)]
    for chat_id, time in zip(chats, (b"-5", b"-6", b"1500000000000000", b"1500000000000001"), strict=True):
        path = folder / f"{chat_id}.json"
        path.write_bytes(re.sub(rb'"updatedAt":\d+', b'"updatedAt":' + time, without_checksums(path.read_bytes())))
    (folder / INDEX_NAME).unlink()
    async with serve() as memory:
        seen, token = list[str](), ""
        while len(seen) < len(chats):
            page = await memory.chats(page_size=1, page_token=token)
            seen, token = [*seen, *(chat.chat_id for chat in page.chats)], page.next_page_token
        assert seen == [chats[n] for n in (3, 2, 0, 1)]
