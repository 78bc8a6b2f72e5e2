"""LoadContext with a model's limits: counted as the gateway counts, due in time, and made to fit."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import ContextLengthExceeded
from headrace.streams import rpc_errors
from headrace.v1 import common_pb2, llm_pb2, memory_pb2
from services.memory.context.token_ratios import RATIO_MAX
from services.runtime.tokens import count
from tests.memory.conftest import Serve
from tests.memory.context.test_context import check_paired, text_of, to_tuples
from tests.memory.writing import Memory, call, content, new_id, reasoning, result, run_line, step_line, user

TOOLS = [llm_pb2.ToolSchema(name="weather", description="Tells it.", parameters='{"type": "object"}')]
WORDS = "one two three four five six seven eight nine ten "


def limits(window: int = 128_000, output: int = 1_000, model: str = "gpt-4o") -> memory_pb2.ModelLimits:
    return memory_pb2.ModelLimits(provider_key="p", model=model, context_window_tokens=window, output_tokens=output)


async def load(memory: Memory, chat_id: str, run_id: str, **fields: Any) -> memory_pb2.LoadContextResponse:
    with rpc_errors():
        given: dict[str, Any] = {"limits": limits()} | fields
        request = memory_pb2.LoadContextRequest(chat_id=chat_id, run_id=run_id, **given)
        return await memory.stub.LoadContext(request)


async def test_the_count_is_that_of_the_whole_request(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("one 水")
    image = user("look")
    image.message.content.add(image=llm_pb2.ImagePart(url="https://example.org/cat.png", detail="low"))
    pieces = [reasoning("I think"), content("Let me "), call("t1", '{"a": 1}'), call("t2")]
    await memory.append(chat_id, run_id, step_line(image, *pieces, result("t1", "sun " * 600)))
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
    loaded = await memory.stub.LoadContext(memory_pb2.LoadContextRequest(chat_id=chat_id, run_id=run_id))
    assert (loaded.tokens, loaded.compaction_due, len(loaded.messages)) == (0, False, 1)


async def test_another_model_is_counted_by_a_ratio_that_its_usage_teaches(memory: Memory) -> None:
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
    ("usage", "ratio"), [({"input_tokens": 10**9}, RATIO_MAX), ({"input_tokens": 700, "estimated": True}, 1.15)]
)
async def test_nonsense_teaches_little_and_estimates_nothing(
    memory: Memory, usage: dict[str, Any], ratio: float
) -> None:
    chat_id, run_id = await memory.begin("hello " * 500)
    other = limits(window=1_000_000, model="qwen3-max")
    await load(memory, chat_id, run_id, limits=other)
    reported = common_pb2.Usage(**usage)
    await memory.append(chat_id, run_id, step_line(content("a", usage=reported)))
    exact = (await load(memory, chat_id, run_id)).tokens
    assert (await load(memory, chat_id, run_id, limits=other)).tokens == pytest.approx(ratio * exact, abs=1)


async def test_an_unknown_window_is_the_smallest_in_use(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("hello")
    await memory.append(chat_id, run_id, *(step_line(content("x " * 1000, msg_id=new_id())) for _ in range(50)))
    nobody = memory_pb2.ModelLimits(provider_key="p", model="nobody-knows")
    loaded = await load(memory, chat_id, run_id, limits=nobody)
    assert loaded.compaction_due
    assert 20_000 < loaded.tokens <= 32_768


async def test_at_80_percent_compaction_is_due(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("hello")
    await memory.append(chat_id, run_id, *(step_line(content(WORDS, msg_id=new_id())) for _ in range(100)))
    tokens_now = (await load(memory, chat_id, run_id)).tokens
    almost = limits(window=int(tokens_now / 0.8) + 3 + 100, output=100)
    assert not (await load(memory, chat_id, run_id, limits=almost)).compaction_due
    enough = limits(window=int(tokens_now / 0.8) + 100, output=100)
    assert (await load(memory, chat_id, run_id, limits=enough)).compaction_due


async def test_what_cannot_gain_is_not_due(memory: Memory) -> None:
    chat_id, run_id = await memory.begin(WORDS * 100)
    loaded = await load(memory, chat_id, run_id, limits=limits(window=1_250, output=100))
    assert loaded.tokens > 0.8 * 1_150
    assert not loaded.compaction_due, "the one message is being answered"


async def test_the_oldest_pairs_go_where_all_does_not_fit(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("old")
    await memory.append(chat_id, run_id, step_line(content("answer " * 200)), run_line())
    _, run_id = await memory.begin("the question", chat_id)
    for index in range(10):
        step = step_line(call(f"t{index}", msg_id=new_id()), result(f"t{index}", WORDS * 10))
        await memory.append(chat_id, run_id, step)
    loaded = await load(memory, chat_id, run_id, system="You are", limits=limits(window=1_000, output=300))
    check_paired(loaded.messages)
    assert loaded.tokens <= 700
    assert loaded.compaction_due
    assert to_tuples(loaded.messages)[:2] == [("system", "You are"), ("user", "the question")]
    ids = [message.tool_call_id for message in loaded.messages if message.role == "tool"]
    assert ids == [f"t{index}" for index in range(10 - len(ids), 10)]
    assert len(ids) == 5


async def test_a_question_that_does_not_fit_is_refused_with_the_figures(memory: Memory) -> None:
    chat_id, run_id = await memory.begin(WORDS * 100)
    with pytest.raises(ContextLengthExceeded) as refused:
        await load(memory, chat_id, run_id, system="You are", limits=limits(window=500, output=100))
    assert refused.value.metadata == {"currentTokens": "1015", "maxTokens": "400", "role": "user"}
    chat_id, run_id = await memory.begin("short")
    with pytest.raises(ContextLengthExceeded) as refused:
        await load(memory, chat_id, run_id, system=WORDS * 100, limits=limits(window=500, output=100))
    assert refused.value.metadata["role"] == "system"


async def test_reminders_are_within_the_limit_too(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("hello")
    await memory.append(chat_id, run_id, *(step_line(content(WORDS, msg_id=new_id())) for _ in range(100)))
    loaded = await load(memory, chat_id, run_id, reminders=[WORDS * 10], limits=limits(window=1_000, output=500))
    assert loaded.tokens <= 500
    assert text_of(loaded.messages[-1]).startswith("<system_reminder>")


async def test_a_restart_counts_the_same(serve: Serve) -> None:
    async with serve() as memory:
        chat_id, run_id = await memory.begin("hello")
        await memory.append(chat_id, run_id, *(step_line(content(WORDS, msg_id=new_id())) for _ in range(100)))
        before = await load(memory, chat_id, run_id)
    async with serve() as memory:
        assert await load(memory, chat_id, run_id) == before
