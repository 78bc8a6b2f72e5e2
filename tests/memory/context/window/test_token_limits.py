"""LoadContext with a model's limits: tokens are counted as the gateway counts them, compaction is due in time, and the
request fits.

There is one window, by tokens: everything omitted from the context leaves a shortened form or a notice in its place.
"""

import json
import re
from typing import Any

import pytest

from headrace.errors import ContextLengthExceeded
from headrace.v1 import common_pb2, llm_pb2, memory_pb2
from services.runtime.auth.identity import Identity, acting_as
from services.runtime.tokens import count
from tests.support.memory.contexts import WORDS, check_paired, left_out, limits, load, text_of, to_tuples
from tests.support.memory.messages import call, content, image, reasoning, result, user
from tests.support.memory.writing import Memory, new_id, run_line, step_line

TOOLS = [llm_pb2.ToolSchema(name="weather", description="Tells it.", parameters='{"type": "object"}')]


async def test_the_token_count_covers_the_whole_request(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("one 水")
    upload = user("look", image(url="https://example.org/cat.png", detail="low"))
    pieces = [reasoning("I think"), content("Let me "), call("t1", '{"a": 1}'), call("t2")]
    await memory.append(chat_id, run_id, step_line(upload, *pieces, result("t1", "sun " * 600)))
    loaded = await load(memory, chat_id, run_id)
    assert loaded.tokens == count.count_request(loaded.messages, (), "o200k_base")
    loaded = await load(memory, chat_id, run_id, system="You are", tools=TOOLS, reminders=["now"])
    assert loaded.tokens == count.count_request(loaded.messages, TOOLS, "o200k_base")
    await memory.append(chat_id, run_id, run_line())
    _, run_id = await memory.begin("two", chat_id)
    loaded = await load(memory, chat_id, run_id, reminders=["now"])
    assert loaded.tokens == count.count_request(loaded.messages, (), "o200k_base")
    assert await load(memory, chat_id, run_id, reminders=["now"]) == loaded, "counted once, and the same"


async def test_without_limits_nothing_is_counted(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("x " * 100_000)
    loaded = await memory.call("LoadContext", chat_id=chat_id, run_id=run_id)
    assert (loaded.tokens, loaded.compaction_due, len(loaded.messages)) == (0, False, 1)


async def test_another_model_is_counted_by_a_ratio_learned_from_its_usage(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("hello " * 500)
    other = limits(model="qwen3-max")
    exact = (await load(memory, chat_id, run_id)).tokens
    first = await load(memory, chat_id, run_id, limits=other)
    assert first.tokens == pytest.approx(exact * count.ESTIMATE_RATIO, abs=1)
    usage = common_pb2.Usage(input_tokens=2 * exact)
    await memory.append(chat_id, run_id, step_line(content("a", usage=usage)))
    exact = (await load(memory, chat_id, run_id)).tokens
    assert (await load(memory, chat_id, run_id, limits=other)).tokens == pytest.approx(2 * exact, abs=1)
    assert (await load(memory, chat_id, run_id, limits=limits(model="qwen2"))).tokens < 1.2 * exact


@pytest.mark.parametrize(
    ("usage", "ratio"),
    [
        *(({"input_tokens": nonsense}, 1.15) for nonsense in (10**9, 50_600, 11)),
        ({"input_tokens": 700, "estimated": True}, 1.15),
        ({"input_tokens": 300}, 1),
    ],
)
async def test_nonsense_and_estimates_teach_no_ratio_and_a_ratio_is_never_below_1(
    memory: Memory, usage: dict[str, Any], ratio: float
) -> None:
    chat_id, run_id = await memory.begin("hello " * 500)
    other = limits(window=1_000_000, model="qwen3-max")
    for _ in range(3):
        await load(memory, chat_id, run_id, limits=other)
        reported = common_pb2.Usage(**usage)
        await memory.append(chat_id, run_id, step_line(content("a", usage=reported, msg_id=new_id())))
    exact = (await load(memory, chat_id, run_id)).tokens
    assert (await load(memory, chat_id, run_id, limits=other)).tokens == pytest.approx(ratio * exact, abs=1)


async def test_the_encoding_named_in_the_provider_file_counts_exactly(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("敏捷的棕色狐狸 " * 100)
    named = limits(model="house-model")
    named.encoding = "cl100k_base"
    loaded = await load(memory, chat_id, run_id, limits=named)
    assert loaded.tokens == count.count_request(loaded.messages, (), "cl100k_base")
    await memory.append(chat_id, run_id, step_line(content("a", usage=common_pb2.Usage(input_tokens=11))))
    loaded = await load(memory, chat_id, run_id, limits=named)
    assert loaded.tokens == count.count_request(loaded.messages, (), "cl100k_base"), "11 tokens are no usage of that"


async def test_a_ratio_belongs_to_one_provider_and_one_tenant(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("hello " * 500)
    other = limits(window=1_000_000, model="qwen3-max")
    exact = (await load(memory, chat_id, run_id)).tokens
    await load(memory, chat_id, run_id, limits=other)
    usage = common_pb2.Usage(input_tokens=3 * exact)
    await memory.append(chat_id, run_id, step_line(content("a", usage=usage)))
    assert (await load(memory, chat_id, run_id, limits=other)).tokens == pytest.approx(3 * exact, rel=0.05)
    elsewhere = memory_pb2.ModelLimits(provider_key="q", model="qwen3-max", context_window_tokens=1_000_000)
    assert (await load(memory, chat_id, run_id, limits=elsewhere)).tokens < 1.2 * exact
    with acting_as(Identity("another", "user")):
        theirs, run_id = await memory.begin("hello " * 500)
        assert (await load(memory, theirs, run_id, limits=other)).tokens < 1.2 * exact


async def test_an_unknown_window_is_assumed_to_be_the_smallest_in_use(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("hello")
    await memory.append(chat_id, run_id, *(step_line(content("x " * 1000, msg_id=new_id())) for _ in range(50)))
    nobody = memory_pb2.ModelLimits(provider_key="p", model="nobody-knows")
    loaded = await load(memory, chat_id, run_id, limits=nobody)
    assert loaded.compaction_due
    assert 20_000 < loaded.tokens <= 32_768


async def test_compaction_is_due_at_80_percent(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("hello")
    await memory.append(chat_id, run_id, *(step_line(content(WORDS, msg_id=new_id())) for _ in range(100)))
    tokens_now = (await load(memory, chat_id, run_id)).tokens
    almost = limits(window=int(tokens_now / 0.8) + 3 + 100, output=100)
    assert not (await load(memory, chat_id, run_id, limits=almost)).compaction_due
    enough = limits(window=int(tokens_now / 0.8) + 100, output=100)
    assert (await load(memory, chat_id, run_id, limits=enough)).compaction_due


async def test_compaction_is_not_due_if_it_cannot_gain_anything(memory: Memory) -> None:
    chat_id, run_id = await memory.begin(WORDS * 100)
    loaded = await load(memory, chat_id, run_id, limits=limits(window=1_250, output=100))
    assert loaded.tokens > 0.8 * 1_150
    assert not loaded.compaction_due, "the one message is being answered"


async def test_the_oldest_pairs_are_omitted_if_the_request_does_not_fit(memory: Memory) -> None:
    chat_id, run_id = await memory.begin_with(step_line(content("answer " * 200)), run_line(), message="old")
    _, run_id = await memory.begin("the question", chat_id)
    for index in range(10):
        step = step_line(call(f"t{index}", msg_id=new_id()), result(f"t{index}", WORDS * 10))
        await memory.append(chat_id, run_id, step)
    loaded = await load(memory, chat_id, run_id, system="You are", limits=limits(window=1_000, output=300))
    check_paired(loaded.messages)
    assert loaded.tokens <= 700
    assert loaded.compaction_due
    assert (loaded.is_over, loaded.has_left) == (True, True)
    assert "older ones are left out" in loaded.notice
    messages = to_tuples(loaded.messages)
    assert messages[:3] == [("system", "You are"), ("user", left_out(1, 2)), ("user", "the question")]
    assert messages[3] == ("user", left_out(5, 5 + 9 - (len(messages) - 4) // 2))
    ids = [message.tool_call_id for message in loaded.messages if message.role == "tool"]
    assert ids == [f"t{index}" for index in range(10 - len(ids), 10)]
    assert len(ids) == 4


async def test_a_question_that_does_not_fit_is_shortened_to_its_head_and_tail(memory: Memory) -> None:
    chat_id, run_id = await memory.begin(f"The head. {WORDS * 100}The tail?")
    loaded = await load(memory, chat_id, run_id, system="You are", limits=limits(window=500, output=100))
    question = text_of(loaded.messages[-1])
    assert (question[:9], question[-9:], loaded.is_over) == ("The head.", "The tail?", True)
    assert "of 4,919 characters are left out here: read_history 1 has them" in question
    assert loaded.tokens == count.count_request(loaded.messages, (), "o200k_base") <= 400


async def test_a_system_message_that_does_not_fit_is_rejected_with_the_figures(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("short")
    with pytest.raises(ContextLengthExceeded) as refused:
        await load(memory, chat_id, run_id, system=WORDS * 100, limits=limits(window=500, output=100))
    assert refused.value.metadata == {"currentTokens": "1014", "maxTokens": "400", "role": "system"}


async def test_reminders_count_against_the_limit_too(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("hello")
    await memory.append(chat_id, run_id, *(step_line(content(WORDS, msg_id=new_id())) for _ in range(100)))
    loaded = await load(memory, chat_id, run_id, reminders=[WORDS * 10], limits=limits(window=1_000, output=500))
    assert loaded.tokens <= 500
    assert text_of(loaded.messages[-1]).startswith("<system_reminder>")


SYSTEM = "You are of help."


READ = re.compile(r"read_history (\d+)(?:-(\d+))? ha")


async def converse(memory: Memory, runs: int, chat_id: str = "", answer: str = "answer") -> tuple[str, str]:
    """Hold `runs` runs and begin one more."""
    chat_id, run_id = await memory.begin("question 0", chat_id)
    for number in range(1, runs + 1):
        await memory.append(chat_id, run_id, step_line(content(f"{answer} {number}")), run_line())
        _, run_id = await memory.begin(f"question {number}", chat_id)
    return chat_id, run_id


def count_tokens(loaded: memory_pb2.LoadContextResponse) -> int:
    return count.count_request(loaded.messages, (), "o200k_base")


async def test_a_chat_that_fits_is_sent_whole_however_many_runs_it_has(memory: Memory) -> None:
    chat_id, run_id = await converse(memory, 60)
    loaded = await load(memory, chat_id, run_id, limits=limits(window=131_072))
    assert [text_of(message) for message in loaded.messages][:3] == ["question 0", "answer 1", "question 1"]
    assert len(loaded.messages) == 121
    assert (loaded.has_left, loaded.is_over, loaded.compaction_due, loaded.notice) == (False, False, False, "")
    assert not loaded.is_past_cap, "a summary would be as long as what it stands for"


async def test_a_chat_past_a_cap_is_sent_whole_until_it_is_compacted_after_the_run(memory: Memory) -> None:
    chat_id, run_id = await converse(memory, 19, answer=WORDS * 5)
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
    chat_id, run_id = await converse(memory, 8, answer=WORDS * 50)
    assert not (await load(memory, chat_id, run_id, window=window)).is_past_cap
    await memory.append(chat_id, run_id, step_line(content("answer")), run_line())
    _, run_id = await memory.begin("now", chat_id)
    assert (await load(memory, chat_id, run_id, window=window)).is_past_cap


async def test_dropped_runs_leave_a_notice(memory: Memory) -> None:
    chat_id, run_id = await converse(memory, 30)
    window = memory_pb2.WindowSettings(runs_max=20, older="drop")
    loaded = await load(memory, chat_id, run_id, window=window)
    assert [text_of(message) for message in loaded.messages][:2] == [left_out(1, 29), "question 10"]
    assert (loaded.has_left, loaded.is_past_cap) == (True, False)


async def test_a_large_result_is_shortened_and_no_request_repeats_the_previous_one(
    memory: Memory,
) -> None:
    chat_id, run_id = await memory.begin("Read the file.")
    small = limits(window=8_192, output=1_024)
    before = await load(memory, chat_id, run_id, limits=small)
    text = "".join(f"line {number:>6}\n" for number in range(2_500))
    await memory.append(chat_id, run_id, step_line(call("c1"), result("c1", f"BEGIN\n{text}END")))
    after = await load(memory, chat_id, run_id, limits=small)
    last_text = text_of(after.messages[-1])
    assert len(after.messages) == len(before.messages) + 2
    assert (last_text[:5], last_text[-3:]) == ("BEGIN", "END")
    assert 'read_result "c1" has them' in last_text
    assert f"of {len(text) + 9:,} characters are left out here" in last_text
    assert count_tokens(after) == after.tokens <= 7_168
    assert (after.has_left, after.is_over, after.notice != "") == (True, True, True)


async def test_eight_results_at_once_are_shortened_equally(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("Read them all.")
    calls = [call(f"c{number}") for number in range(8)]
    results = [result(f"c{number}", WORDS * 600) for number in range(8)]
    await memory.append(chat_id, run_id, step_line(*calls, *results))
    loaded = await load(memory, chat_id, run_id, limits=limits(window=32_768, output=4_096))
    check_paired(loaded.messages)
    assert {len(text_of(message)) // 100 for message in loaded.messages if message.role == "tool"} == {160}
    assert count_tokens(loaded) <= 28_672


async def test_shortened_arguments_stay_a_json_object(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("Write the file.")
    arguments = json.dumps({"path": "a.txt", "content": WORDS * 1000, "mode": 7})
    await memory.append(chat_id, run_id, step_line(call("c1", arguments), result("c1", "ok")))
    loaded = await load(memory, chat_id, run_id, limits=limits(window=4_096, output=1_024))
    (tool_call,) = loaded.messages[1].tool_calls
    given = json.loads(tool_call.arguments)
    assert (given["path"], given["mode"]) == ("a.txt", 7)
    assert "read_history 2 has them" in given["content"]


async def test_old_results_are_cleared_before_compaction_is_due_and_the_reader_tool_is_counted(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("Look.")
    for number in range(8):
        step = step_line(call(f"c{number}", msg_id=new_id()), result(f"c{number}", WORDS * 100))
        await memory.append(chat_id, run_id, step)
    small = limits(window=10_000, output=1_000)
    whole = await load(memory, chat_id, run_id, limits=small)
    cleared = await load(memory, chat_id, run_id, limits=small, window=memory_pb2.WindowSettings(results_kept=2))
    assert (whole.compaction_due, cleared.compaction_due, cleared.is_over) == (True, False, False)
    sizes = [len(text_of(message)) > 2000 for message in cleared.messages if message.role == "tool"]
    assert sizes == [False] * 6 + [True] * 2
    reader = llm_pb2.ToolSchema(name="read_result", description="Read it. " * 50, parameters="{}")
    window = memory_pb2.WindowSettings(results_kept=2)
    loaded = await load(memory, chat_id, run_id, limits=small, window=window, history_tools=[reader])
    assert loaded.has_left
    assert loaded.tokens == count.count_request(loaded.messages, [reader], "o200k_base")


async def test_an_agent_can_set_when_compaction_is_due(memory: Memory) -> None:
    chat_id, run_id = await converse(memory, 10, answer=WORDS * 10)
    small = limits(window=3_000, output=1_000)
    assert not (await load(memory, chat_id, run_id, limits=small)).compaction_due
    early = memory_pb2.WindowSettings(due_ratio=0.5)
    assert (await load(memory, chat_id, run_id, limits=small, window=early)).compaction_due


@pytest.mark.parametrize("window", [4_096, 8_192])
async def test_a_chat_of_many_runs_fits_into_a_small_window(memory: Memory, window: int) -> None:
    chat_id, run_id = await converse(memory, 120, answer=WORDS * 10)
    loaded = await load(memory, chat_id, run_id, limits=limits(window=window, output=1_000))
    assert count_tokens(loaded) <= window - 1_000
    first, *others = [text_of(message) for message in loaded.messages]
    assert READ.search(first)
    assert others[-1] == "question 120"
