"""Logs after crashes: cut at any byte, or damaged in the middle."""

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import LogDamaged
from services.memory.log import recovery
from services.memory.storage.files.disk import Disk
from tests.support.memory.contexts import list_texts
from tests.support.memory.engines import Serve, logs_in
from tests.support.memory.log_editing import without_checksums
from tests.support.memory.messages import call, content, result, user
from tests.support.memory.serving import memory_over
from tests.support.memory.writing import event_line, new_id, query_line, run_line, step_line


def read_numbers(path: Path) -> list[int]:
    return [orjson.loads(line)["_n"] for line in path.read_bytes().splitlines()]


@asynccontextmanager
async def written_log() -> AsyncGenerator[tuple[str, Path, list[int]]]:
    """Write a chat in several appends; yield its id, its log in a folder of its own, and the last line number of each
    append.
    """
    chat_id, run_id = new_id(), new_id()
    appends = [
        [query_line("水车\n")],
        [step_line(content("one"), call("t1")), step_line(result("t1", "x" * 50))],
        [event_line(seq=9, timestamp=1, run_notice={"run_id": run_id, "code": "A", "message": "b"})],
        [step_line(content("two")), run_line()],
    ]
    with tempfile.TemporaryDirectory() as folder:
        async with memory_over(Path(folder)) as memory:
            ends = [(await memory.append(chat_id, run_id, *lines)).last_n for lines in appends]
        yield chat_id, Path(folder) / f"{chat_id}.json", ends


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
async def test_a_log_cut_at_any_byte_keeps_whole_appends_and_takes_the_next_one(data: st.DataObject) -> None:
    async with written_log() as (chat_id, path, ends):
        log = path.read_bytes()
        cut = data.draw(st.integers(1, len(log)))
        path.write_bytes(log[:cut])
        whole = max((end for end in ends if log[:cut].count(b"\n") >= end), default=0)

        async with memory_over(path.parent) as memory:
            assert path.read_bytes() == b"".join(log.splitlines(keepends=True)[:whole])
            tail = path.with_name(f"{path.name}.damaged")
            assert path.read_bytes() + (tail.read_bytes() if tail.exists() else b"") == log[:cut]
            reply = await memory.append(chat_id, new_id(), query_line("next"))
        assert reply.first_n == whole + 1
        assert read_numbers(path) == list(range(1, whole + 2))


BODILESS = b'{"_type":"query","_n":2,"uuid":"u","chatId":"c","updatedAt":1}\n'
"""Has the fields of every line, but not those of a query."""


@pytest.mark.parametrize("garbage", [b"{", b"\0" * 100, b"\0\xff\n", b"[" * 100_000, b'{"_type":"ru\0\0\0\0"}\n\0'])
async def test_garbage_left_at_the_end_by_a_power_cut_is_set_aside(serve: Serve, folder: Path, garbage: bytes) -> None:
    async with serve() as memory:
        chat_id, run_id = await memory.begin()
    path = folder / f"{chat_id}.json"
    log = path.read_bytes()
    path.write_bytes(log + garbage)
    async with serve() as memory:
        assert (await memory.append(chat_id, run_id, step_line(user("a")))).first_n == 2
    assert path.read_bytes().startswith(log)
    assert (folder / f"{chat_id}.json.damaged").read_bytes() == garbage


@pytest.mark.parametrize("garbage", [b"\xff\n", b"[" * 100_000 + b"\n", BODILESS, b"{}\nx\n"])
async def test_whole_lines_that_memory_did_not_write_are_damage_and_stay(
    serve: Serve, folder: Path, garbage: bytes
) -> None:
    async with serve() as memory:
        chat_id, run_id = await memory.begin()
    path = folder / f"{chat_id}.json"
    path.write_bytes(log := path.read_bytes() + garbage)
    async with serve() as memory:
        with pytest.raises(LogDamaged):
            await memory.append(chat_id, run_id, step_line(user("a")))
    assert path.read_bytes() == log
    assert logs_in(folder) == [path.name]


async def test_everything_after_a_gap_within_one_write_is_set_aside(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        chat_id, run_id = await memory.begin_with(*(step_line(user(text)) for text in "abc"))
    path = folder / f"{chat_id}.json"
    first, hole, *others = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + bytes(len(hole)) + b"".join(others))
    async with serve() as memory:
        assert len(await memory.context(chat_id, run_id)) == 1
        assert (await memory.append(chat_id, run_id, step_line(user("d")))).first_n == 2


async def test_a_log_without_a_readable_line_is_damaged_and_not_a_new_chat(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        chat_id, _ = await memory.begin()
    path = folder / f"{chat_id}.json"
    path.write_bytes(log := path.read_bytes().swapcase())
    for _ in range(2):  # the second start trusts its index
        async with serve() as memory:
            with pytest.raises(LogDamaged):
                await memory.append(chat_id, new_id(), query_line("a new chat"))
    assert path.read_bytes() == log


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
async def test_a_flipped_bit_never_changes_the_lines_that_are_read(data: st.DataObject) -> None:
    async with written_log() as (chat_id, path, _):
        whole = path.read_bytes()
        position, bit = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 7))
        flipped = bytearray(whole)
        flipped[position] ^= 1 << bit
        before, after = recovery.read_log(whole, chat_id), recovery.read_log(bytes(flipped), chat_id)
    # A flipped bit in the name of the checksum leaves a line without one.
    assert after.is_damaged or after.lines == before.lines
    assert all(line in before.lines for line in after.lines)


async def test_lines_of_older_versions_without_a_checksum_are_read(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        chat_id, run_id = await memory.begin("hello")
    path = folder / f"{chat_id}.json"
    path.write_bytes(without_checksums(path.read_bytes()))
    assert b"_crc" not in path.read_bytes()
    async with serve() as memory:
        await memory.append(chat_id, run_id, step_line(user("a")))
        assert len(await memory.context(chat_id, run_id)) == 2
    assert read_numbers(path) == [1, 2]


def _make_link(path: Path, other: Path) -> None:
    other.write_bytes(b"keep me\n")
    path.symlink_to(other)


ODD_ENTRIES: dict[str, Callable[[Path, Path], None]] = {
    "a folder": lambda path, _: path.mkdir(),
    "a link": _make_link,
    "a FIFO": lambda path, _: os.mkfifo(path),
    "a link to nothing": lambda path, other: path.symlink_to(other),
}


@pytest.mark.parametrize("make", ODD_ENTRIES.values(), ids=ODD_ENTRIES)
async def test_an_entry_with_a_logs_name_that_is_no_file_affects_only_its_chat(
    serve: Serve, folder: Path, tmp_path_factory: pytest.TempPathFactory, make: Callable[[Path, Path], None]
) -> None:
    async with serve() as memory:
        other_chat, run_id = await memory.begin("hello")
    odd, target = new_id(), tmp_path_factory.mktemp("elsewhere") / "target"
    make(folder / f"{odd}.json", target)
    async with asyncio.timeout(200), serve() as memory:
        assert [chat.chat_id for chat in (await memory.chats()).chats] == [other_chat]
        await memory.append(other_chat, run_id, step_line(user("a")))
        with pytest.raises(LogDamaged):
            await memory.append(odd, new_id(), query_line())
    assert not target.exists() or target.read_bytes() == b"keep me\n"


Damage = Callable[[list[bytes]], list[bytes]]

DAMAGES: dict[str, Damage] = {
    "unreadable line": lambda lines: [lines[0], b"{broken\n", *lines[2:]],
    "garbage between lines": lambda lines: [lines[0], b"garbage\n", *lines[1:]],
    "unreadable first line": lambda lines: [b"\0\0\n", *lines[1:]],
    "hole in an earlier write": lambda lines: [lines[0], bytes(len(lines[1])), *lines[2:]],
    "gap": lambda lines: [*lines[:2], lines[3]],
    "repetition": lambda lines: [*lines[:2], lines[1], *lines[2:]],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_damage_before_valid_lines_makes_the_chat_read_only(serve: Serve, folder: Path, damage: Damage) -> None:
    async with serve() as memory:
        chat_id, run_id = await memory.begin("hello")
        for text in ("a", "b", "c"):
            await memory.append(chat_id, run_id, step_line(user(text)))
    path = folder / f"{chat_id}.json"
    damaged = b"".join(damage(path.read_bytes().splitlines(keepends=True)))
    path.write_bytes(damaged)
    async with serve() as memory:
        with pytest.raises(LogDamaged):
            await memory.append(chat_id, run_id, step_line(user("d")))
        assert (await memory.context(chat_id, run_id))[-1].content[0].text == "c"
        raw = orjson.loads((await memory.chat(chat_id=chat_id, include_raw_messages=True)).raw_messages)
        assert raw[-1]["content"][0]["text"] == "c"
        assert await memory.list_unfinished() == [], "nobody can end a run in a log that takes no lines"
        assert path.read_bytes() == damaged
        await memory.delete(chat_id)
    assert logs_in(folder) == []


async def test_a_line_of_an_unknown_kind_keeps_its_number(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        chat_id, run_id = await memory.begin("hello")
    line = {"_type": "omen", "_n": 2, "uuid": new_id(), "chatId": chat_id, "updatedAt": 1, "sign": 3}
    with (folder / f"{chat_id}.json").open("ab") as log:
        log.write(orjson.dumps(line) + b"\n")
    async with serve() as memory:
        assert (await memory.append(chat_id, run_id, step_line(user("a")))).first_n == 3
        assert len(await memory.context(chat_id, run_id)) == 2


async def test_an_empty_file_and_a_file_of_another_name_are_no_chats(serve: Serve, folder: Path) -> None:
    Disk(folder).close()
    empty = new_id()
    (folder / f"{empty}.json").touch()
    (folder / "notes.json").write_text("{")
    async with serve() as memory:
        assert list((await memory.chats()).chats) == []
        assert (await memory.append(empty, new_id(), query_line())).first_n == 1


async def test_chats_that_are_not_cached_are_read_again(serve: Serve) -> None:
    async with serve(cache_bytes_max=1) as memory:
        chats = [await memory.begin(str(index)) for index in range(5)]
        for turn in range(3):
            for chat in chats:
                assert (await memory.append(*chat, step_line(user(f"turn {turn}")))).first_n == turn + 2
        for index, chat in enumerate(chats):
            texts = await list_texts(memory, *chat)
            assert texts == [str(index), "turn 0", "turn 1", "turn 2"]


async def test_an_uncached_chat_is_opened_once_for_concurrent_callers(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        chat_id, run_id = await memory.begin()
    async with asyncio.timeout(200), serve() as memory:
        await asyncio.gather(*(memory.append(chat_id, run_id, step_line(user("a"))) for _ in range(20)))
    assert read_numbers(folder / f"{chat_id}.json") == list(range(1, 22))
