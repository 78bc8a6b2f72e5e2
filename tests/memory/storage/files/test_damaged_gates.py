"""Gates of chats whose logs are damaged: what can be read of them is listed, from an index made anew, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.memory.storage.files.indexing.index_recovery import INDEX_NAME
from tests.support.memory.engines import Serve
from tests.support.memory.gates import ids, opening, submitted
from tests.support.memory.writing import new_id, query_line, run_line, step_line, user

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
"""What a line that cannot be read takes with it."""


@pytest.mark.parametrize("is_index_new", [True, False], ids=["index made anew", "index kept"])
@pytest.mark.parametrize("damaged", LINES)
async def test_gates_of_a_damaged_chat_stay_listed(
    damaged: str, is_index_new: bool, serve: Serve, folder: Path
) -> None:
    async with serve() as memory:
        chat_id, run_id = await memory.begin()
        await memory.append(chat_id, run_id, run_line())
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
        for suffix in ("", "-wal", "-shm"):
            (folder / f"{INDEX_NAME}{suffix}").unlink(missing_ok=True)
    expected = {"form_1", "form_2"} - LOST.get(damaged, set())
    if damaged == "the answer to form_3":
        expected.add("form_3")  # nothing that can be read says that it was answered
    async with serve() as memory:
        listed = {gate.gate_id: gate for gate in (await memory.gates()).gates}
        assert set(listed) == expected
        assert {gate.requester for gate in listed.values()} == {"default"}
        assert (await memory.gate(waiting, next(iter(expected)))).chat_id == chat_id
