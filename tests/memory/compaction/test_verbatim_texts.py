"""Texts that follow a summary verbatim: requests up to a share of the window, and the first lines of files."""

from pathlib import Path

import pytest

from headrace.errors import Overloaded
from headrace.v1 import memory_pb2
from tests.support.memory.contexts import limits, text_of
from tests.support.memory.messages import content
from tests.support.memory.summarising import SUMMARY, Answer, Summariser, compact, converse, say_more, summarising
from tests.support.memory.writing import Memory, new_id, run_line, step_line

NUMBERED = " ".join(f"requirement-{number}" for number in range(1_000))
CHINESE = "水は高きより低きに流れる。" * 800


async def begin_with(memory: Memory, request: str) -> tuple[str, str]:
    """Begin a chat with `request`, followed by runs about other things."""
    chat_id, run_id = await memory.begin(request, new_id())
    await memory.append(chat_id, run_id, step_line(content("Yes.")), run_line())
    for number in range(8):
        _, run_id = await memory.begin(f"question {number}", chat_id)
        await memory.append(chat_id, run_id, *say_more(3), run_line())
    return await memory.begin("the last question", chat_id)


async def read_pinned_request(folder: Path, request: str, answer: Answer, window: int) -> str:
    async with summarising(folder, Summariser(answer)) as memory:
        chat_id, run_id = await begin_with(memory, request)
        model_limits = limits(window, 1_000, "gpt-4o")
        compaction = await compact(memory, chat_id, run_id, limits=model_limits)
        assert compaction.kinds[-1] == ("complete" if answer is SUMMARY else "fallback"), compaction.last
        text = text_of((await memory.context(chat_id, run_id))[0])
    return text.partition("First request:\n- ")[2]


@pytest.mark.parametrize("answer", [SUMMARY, Overloaded("no")])
async def test_a_long_first_request_is_kept_whole_if_the_window_is_large(folder: Path, answer: Answer) -> None:
    assert (await read_pinned_request(folder, NUMBERED, answer, 100_000)).strip() == NUMBERED


@pytest.mark.parametrize("answer", [SUMMARY, Overloaded("no")])
async def test_a_request_that_is_too_long_is_cut_between_words_with_a_note_how_to_read_it(
    folder: Path, answer: Answer
) -> None:
    pinned = await read_pinned_request(folder, NUMBERED, answer, 11_000)
    head, _, after_head = pinned.partition("\n[… ")
    note, _, tail = after_head.partition(" …]\n")
    words = NUMBERED.split()
    assert note.endswith("characters are left out here: read_history 1 has them")
    assert head.split() == words[: len(head.split())]
    assert tail.split() == words[-len(tail.split()) :]
    assert 1_000 < len(pinned) < 4_000


async def test_a_request_without_spaces_is_cut_too(folder: Path) -> None:
    pinned = await read_pinned_request(folder, CHINESE, SUMMARY, 11_000)
    assert "read_history 1 has them" in pinned
    assert 300 < len(pinned) < 3_000


async def test_the_receipt_contains_the_start_of_a_long_request(folder: Path) -> None:
    async with summarising(folder, Summariser(SUMMARY)) as memory:
        chat_id, run_id = await begin_with(memory, NUMBERED)
        compaction = await compact(memory, chat_id, run_id, limits=limits(100_000, 1_000, "gpt-4o"))
    (item,) = [item for item in compaction.last.receipt.pinned if item.startswith("First request: ")]
    assert item.startswith("First request: requirement-0 requirement-1 ")
    assert "read_history 1 has them" in item
    assert len(item) < 1_200


def make_file(path: str, lines: int) -> memory_pb2.ContextFile:
    text = "\n".join(f"{number}: def f{number}(): return {number}" for number in range(1, lines + 1))
    return memory_pb2.ContextFile(path=path, text=text)


async def test_the_first_lines_of_a_large_file_are_kept(folder: Path) -> None:
    async with summarising(folder, Summariser(SUMMARY)) as memory:
        chat_id, run_id = await converse(memory, 80)
        files = [make_file("large.py", 300), make_file("small.py", 5)]
        compaction = await compact(memory, chat_id, run_id, files=files)
        text = text_of((await memory.context(chat_id, run_id))[0])
    assert compaction.last.files_included == ["large.py", "small.py"]
    _, large, small = text.split("[File: ")
    lines = large.strip().splitlines()
    assert lines[0] == "large.py]"
    assert lines[1:-1] == files[0].text.splitlines()[: len(lines) - 2]
    count = len(lines) - 2
    assert 20 < count < 300
    assert lines[-1] == f"[{300 - count} more lines: read_file with firstLine {count + 1} shows them]"
    assert small.strip() == f"small.py]\n{files[1].text}"


async def test_several_large_files_share_the_space(folder: Path) -> None:
    async with summarising(folder, Summariser(SUMMARY)) as memory:
        chat_id, run_id = await converse(memory, 80)
        files = [make_file(f"{number}.py", 900) for number in range(5)]
        compaction = await compact(memory, chat_id, run_id, files=files)
        text = text_of((await memory.context(chat_id, run_id))[0])
    assert len(compaction.last.files_included) == 5
    assert text.count(" more lines: read_file with firstLine ") == 5


async def test_a_file_of_one_long_line_is_only_named(folder: Path) -> None:
    async with summarising(folder, Summariser(SUMMARY)) as memory:
        chat_id, run_id = await converse(memory, 80)
        file = memory_pb2.ContextFile(path="data.json", text="[" + "1234567, " * 20_000 + "0]")
        compaction = await compact(memory, chat_id, run_id, files=[file])
        text = text_of((await memory.context(chat_id, run_id))[0])
    assert list(compaction.last.files_included) == []
    assert "[File: data.json]\n[1 more lines: read_file with firstLine 1 shows them]" in text
