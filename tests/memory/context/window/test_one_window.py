"""One window, by tokens: nothing leaves what a model sees without a shortened form or a notice in its place."""

from __future__ import annotations

import json
import re

import pytest

from headrace.v1 import llm_pb2, memory_pb2
from services.runtime.tokens import count
from tests.support.memory.contexts import WORDS, check_paired, left_out, limits, load, text_of
from tests.support.memory.writing import Memory, call, content, new_id, result, run_line, step_line

SYSTEM = "You are of help."
READ = re.compile(r"read_history (\d+)(?:-(\d+))? ha")


async def talk(memory: Memory, runs: int, chat_id: str = "", said: str = "answer") -> tuple[str, str]:
    """Hold so many runs, and begin one more."""
    chat_id, run_id = await memory.begin("question 0", chat_id)
    for number in range(1, runs + 1):
        await memory.append(chat_id, run_id, step_line(content(f"{said} {number}")), run_line())
        _, run_id = await memory.begin(f"question {number}", chat_id)
    return chat_id, run_id


def tokens_of(loaded: memory_pb2.LoadContextResponse) -> int:
    return count.count_request(loaded.messages, (), "o200k_base")


async def test_a_chat_that_fits_is_shown_whole_however_many_runs_it_has(memory: Memory) -> None:
    chat_id, run_id = await talk(memory, 60)
    loaded = await load(memory, chat_id, run_id, limits=limits(window=131_072))
    assert [text_of(message) for message in loaded.messages][:3] == ["question 0", "answer 1", "question 1"]
    assert len(loaded.messages) == 121
    assert (loaded.has_left, loaded.is_over, loaded.compaction_due, loaded.notice) == (False, False, False, "")
    assert not loaded.is_past_cap, "a summary would be as long as what it stands for"


async def test_what_is_past_a_cap_is_compacted_after_the_run_and_shown_until_then(memory: Memory) -> None:
    chat_id, run_id = await talk(memory, 19, said=WORDS * 5)
    window = memory_pb2.WindowSettings(runs_max=20)
    assert not (await load(memory, chat_id, run_id, window=window)).is_past_cap, "the next run sees 20 of them"
    await memory.append(chat_id, run_id, step_line(content("answer")), run_line())
    _, run_id = await memory.begin("now", chat_id)
    loaded = await load(memory, chat_id, run_id, window=window)
    assert (loaded.is_past_cap, loaded.compaction_due, len(loaded.messages)) == (True, False, 41)
    by_messages = memory_pb2.WindowSettings(runs_max=1000, messages_max=40)
    assert (await load(memory, chat_id, run_id, window=by_messages)).is_past_cap


async def test_a_chat_is_not_compacted_for_a_cap_before_ten_runs(memory: Memory) -> None:
    window = memory_pb2.WindowSettings(runs_max=2)
    chat_id, run_id = await talk(memory, 8, said=WORDS * 50)
    assert not (await load(memory, chat_id, run_id, window=window)).is_past_cap
    await memory.append(chat_id, run_id, step_line(content("answer")), run_line())
    _, run_id = await memory.begin("now", chat_id)
    assert (await load(memory, chat_id, run_id, window=window)).is_past_cap


async def test_what_is_dropped_leaves_a_notice(memory: Memory) -> None:
    chat_id, run_id = await talk(memory, 30)
    window = memory_pb2.WindowSettings(runs_max=20, older="drop")
    loaded = await load(memory, chat_id, run_id, window=window)
    assert [text_of(message) for message in loaded.messages][:2] == [left_out(1, 29), "question 10"]
    assert (loaded.has_left, loaded.is_past_cap) == (True, False)


async def test_a_result_that_is_too_large_stands_shortened_and_no_request_repeats_the_one_before(
    memory: Memory,
) -> None:
    chat_id, run_id = await memory.begin("Read the file.")
    small = limits(window=8_192, output=1_024)
    before = await load(memory, chat_id, run_id, limits=small)
    text = "".join(f"line {number:>6}\n" for number in range(2_500))
    await memory.append(chat_id, run_id, step_line(call("c1"), result("c1", f"BEGIN\n{text}END")))
    after = await load(memory, chat_id, run_id, limits=small)
    shown = text_of(after.messages[-1])
    assert len(after.messages) == len(before.messages) + 2
    assert (shown[:5], shown[-3:]) == ("BEGIN", "END")
    assert 'read_result "c1" has them' in shown
    assert f"of {len(text) + 9:,} characters are left out here" in shown
    assert tokens_of(after) == after.tokens <= 7_168
    assert (after.has_left, after.is_over, after.notice != "") == (True, True, True)


async def test_eight_results_at_once_are_shortened_alike(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("Read them all.")
    calls = [call(f"c{number}") for number in range(8)]
    results = [result(f"c{number}", WORDS * 600) for number in range(8)]
    await memory.append(chat_id, run_id, step_line(*calls, *results))
    loaded = await load(memory, chat_id, run_id, limits=limits(window=32_768, output=4_096))
    check_paired(loaded.messages)
    assert {len(text_of(message)) // 100 for message in loaded.messages if message.role == "tool"} == {160}
    assert tokens_of(loaded) <= 28_672


async def test_long_arguments_stay_an_object(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("Write the file.")
    arguments = json.dumps({"path": "a.txt", "content": WORDS * 1000, "mode": 7})
    await memory.append(chat_id, run_id, step_line(call("c1", arguments), result("c1", "ok")))
    loaded = await load(memory, chat_id, run_id, limits=limits(window=4_096, output=1_024))
    (shown,) = loaded.messages[1].tool_calls
    given = json.loads(shown.arguments)
    assert (given["path"], given["mode"]) == ("a.txt", 7)
    assert "read_history 2 has them" in given["content"]


async def test_old_results_are_cleared_before_a_compaction_is_due(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("Look.")
    for number in range(8):
        step = step_line(call(f"c{number}", msg_id=new_id()), result(f"c{number}", WORDS * 100))
        await memory.append(chat_id, run_id, step)
    small = limits(window=10_000, output=1_000)
    whole = await load(memory, chat_id, run_id, limits=small)
    kept = await load(memory, chat_id, run_id, limits=small, window=memory_pb2.WindowSettings(results_kept=2))
    assert (whole.compaction_due, kept.compaction_due, kept.is_over) == (True, False, False)
    sizes = [len(text_of(message)) > 2000 for message in kept.messages if message.role == "tool"]
    assert sizes == [False] * 6 + [True] * 2


async def test_the_tools_that_come_with_cleared_results_are_counted(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("Look.")
    for number in range(8):
        step = step_line(call(f"c{number}", msg_id=new_id()), result(f"c{number}", WORDS * 100))
        await memory.append(chat_id, run_id, step)
    reader = llm_pb2.ToolSchema(name="read_result", description="Read it. " * 50, parameters="{}")
    loaded = await load(
        memory, chat_id, run_id, limits=limits(window=10_000, output=1_000),
        window=memory_pb2.WindowSettings(results_kept=2), history_tools=[reader],
    )  # fmt: skip
    assert loaded.has_left
    assert loaded.tokens == count.count_request(loaded.messages, [reader], "o200k_base")


async def test_an_agent_sets_when_compaction_is_due(memory: Memory) -> None:
    chat_id, run_id = await talk(memory, 10, said=WORDS * 10)
    small = limits(window=3_000, output=1_000)
    assert not (await load(memory, chat_id, run_id, limits=small)).compaction_due
    early = memory_pb2.WindowSettings(due_ratio=0.5)
    assert (await load(memory, chat_id, run_id, limits=small, window=early)).compaction_due


@pytest.mark.parametrize("window", [4_096, 8_192])
async def test_a_chat_of_many_runs_keeps_within_a_small_window(memory: Memory, window: int) -> None:
    chat_id, run_id = await talk(memory, 120, said=WORDS * 10)
    loaded = await load(memory, chat_id, run_id, limits=limits(window=window, output=1_000))
    assert tokens_of(loaded) <= window - 1_000
    first, *rest = [text_of(message) for message in loaded.messages]
    assert READ.search(first)
    assert rest[-1] == "question 120"
