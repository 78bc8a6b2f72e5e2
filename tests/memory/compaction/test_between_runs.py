"""Compactions between runs: their model calls are always charged, and the history shows each compaction."""

import asyncio
from pathlib import Path

import pytest

from headrace.errors import Overloaded
from headrace.streams import reading
from headrace.v1 import agent_pb2, memory_pb2
from services.runtime.tokens.count import count_request
from tests.support.memory.messages import PICTURE, call, content, reasoning, result, user
from tests.support.memory.summarising import (
    COST,
    LIMITS,
    REFUSAL,
    SUMMARY,
    WORDS,
    Answer,
    Slow,
    Summariser,
    compact,
    converse,
    lines_of,
    say_more,
    summarising,
)
from tests.support.memory.writing import Memory, query_line, run_line, step_line
from tests.support.summaries import write_summary
from tests.support.waiting import wait_until


async def end_run(memory: Memory, chat_id: str, run_id: str) -> None:
    await memory.append(chat_id, run_id, step_line(content("Yes.")), run_line())


async def compact_between(memory: Memory, chat_id: str, run_id: str) -> str:
    compaction = await compact(memory, chat_id, run_id, summary_only=True)
    return compaction.kinds[-1]


async def load_usage_between_runs(memory: Memory, chat_id: str) -> tuple[int, int]:
    """Return the model calls and input tokens that belong to no run, after comparing the chat's total with the
    store's."""
    _, run_id = await memory.begin("and now", chat_id)
    request = memory_pb2.LoadContextRequest(chat_id=chat_id, run_id=run_id, with_parts=True)
    window = await memory.stub.LoadContext(request)
    whole, usage = window.chat_usage, window.between_runs_usage
    total = (await memory.usage()).total
    assert (total.model_calls, total.input_tokens) == (whole.model_calls, whole.input_tokens)
    return usage.model_calls, usage.input_tokens


LONG = write_summary(" ".join(map(str, range(3000))))


@pytest.mark.parametrize(
    ("answers", "calls"),
    [
        pytest.param([REFUSAL], 2, id="no summary, twice"),
        pytest.param([LONG], 1, id="longer than what it replaces"),
        pytest.param([REFUSAL, Overloaded("no")], 1, id="the second call is refused"),
        pytest.param([SUMMARY], 1, id="done"),
    ],
)
async def test_compaction_calls_are_charged_even_when_it_fails(folder: Path, answers: list[Answer], calls: int) -> None:
    async with summarising(folder, Summariser(*answers)) as memory:
        chat_id, run_id = await converse(memory)
        await end_run(memory, chat_id, run_id)
        kind = await compact_between(memory, chat_id, run_id)
        usage = await load_usage_between_runs(memory, chat_id)
    assert kind == ("complete" if answers == [SUMMARY] else "fail")
    assert usage[1] == calls * COST.input_tokens


async def test_a_summary_whose_caller_has_left_is_charged_by_an_estimate(folder: Path) -> None:
    summariser = Summariser(Slow(SUMMARY, 40))
    async with summarising(folder, summariser) as memory:
        chat_id, run_id = await converse(memory)
        await end_run(memory, chat_id, run_id)
        task = asyncio.create_task(compact(memory, chat_id, run_id, summary_only=True))
        await asyncio.sleep(20)
        task.cancel()
        await wait_until(lambda: lines_of(folder, chat_id)[-1]["_type"] == "compact_boundary")
        calls, tokens = await load_usage_between_runs(memory, chat_id)
    assert calls == 1
    assert tokens > 1_000


async def test_a_summary_that_arrives_too_late_is_charged_and_does_not_harm_the_other(
    memory: Memory, summariser: Summariser
) -> None:
    chat_id, run_id = await converse(memory)
    await end_run(memory, chat_id, run_id)
    summariser.gate.clear()
    both = [asyncio.create_task(compact_between(memory, chat_id, run_id)) for _ in range(2)]
    await wait_until(lambda: summariser.open == 2)
    summariser.gate.set()
    assert sorted(await asyncio.gather(*both)) == ["complete", "fail"]
    assert await load_usage_between_runs(memory, chat_id) == (2, 2 * COST.input_tokens)


async def test_a_failed_compaction_does_not_stop_another_that_is_in_progress(
    memory: Memory, summariser: Summariser
) -> None:
    summariser.answers = [REFUSAL]
    chat_id, first = await converse(memory)
    await end_run(memory, chat_id, first)
    _, second = await memory.begin("and now", chat_id)
    await memory.append(chat_id, second, step_line(content("Hm.")))
    summariser.gate.clear()
    between = asyncio.create_task(compact_between(memory, chat_id, first))
    await wait_until(lambda: summariser.open == 1)
    summariser.answers = [REFUSAL, SUMMARY]
    own = asyncio.create_task(compact(memory, chat_id, second))
    await wait_until(lambda: summariser.open == 2)
    summariser.gate.set()
    assert (await between, (await own).kinds[-1]) in {("fail", "complete"), ("complete", "fail")}


async def test_compaction_during_a_run_is_charged_to_that_run_alone(memory: Memory, summariser: Summariser) -> None:
    summariser.answers = [REFUSAL]
    chat_id, run_id = await converse(memory)
    await compact(memory, chat_id, run_id, summary_only=True)
    assert await load_usage_between_runs(memory, chat_id) == (0, 0)


def list_kinds(events: list[agent_pb2.AgentDelta]) -> list[str]:
    wanted = ("request_query", "run_complete", "compaction_complete", "compaction_fail")
    return [kind for event in events if (kind := str(event.WhichOneof("payload"))) in wanted]


async def test_history_has_each_compaction_between_the_runs(memory: Memory, summariser: Summariser) -> None:
    summariser.answers = [REFUSAL, REFUSAL, SUMMARY]
    chat_id, run_id = await converse(memory, 10)
    await end_run(memory, chat_id, run_id)
    await compact_between(memory, chat_id, run_id)
    compaction = await compact(memory, chat_id, run_id, summary_only=True)
    await memory.append(chat_id, "11111111-1111-4111-8111-111111111111", query_line("later"), run_line())
    events = list((await memory.chat(chat_id=chat_id)).events)
    run = ["request_query", "run_complete"]
    assert list_kinds(events) == [*run * 11, "compaction_fail", "compaction_complete", *run]
    (event,) = [event for event in events if event.HasField("compaction_complete")]
    assert event.compaction_complete == compaction.last
    assert event.seq == 0
    assert event.timestamp > 0
    (failed,) = [event.compaction_fail for event in events if event.HasField("compaction_fail")]
    assert (failed.chat_id, failed.reason) == (chat_id, "INCOMPLETE_SUMMARY")
    of_run = await memory.call("GetChat", chat_id=chat_id, run_id=run_id)
    assert list_kinds(of_run.events) == run


async def test_a_page_may_end_with_a_compaction(memory: Memory, folder: Path) -> None:
    chat_id, run_id = await converse(memory, 10)
    await end_run(memory, chat_id, run_id)
    for _ in range(2):
        assert await compact_between(memory, chat_id, run_id) == "complete"
        _, run_id = await memory.begin("and more", chat_id)
        await memory.append(chat_id, run_id, *say_more(20))
        await end_run(memory, chat_id, run_id)
    whole = list((await memory.chat(chat_id=chat_id)).events)
    numbers = [line["_n"] for line in lines_of(folder, chat_id) if line["_type"] == "compact_boundary"]
    ends = [index for index, event in enumerate(whole) if event.HasField("compaction_complete")]
    for n, end in zip(numbers, ends, strict=True):
        page = await memory.chat(chat_id=chat_id, page_token=f"{n}:1")
        assert list(page.events) == whole[: end + 1]


async def test_watching_a_chat_yields_runs_and_the_compactions_between_them_in_order(
    memory: Memory, summariser: Summariser
) -> None:
    summariser.answers = [SUMMARY]
    chat_id, run_id = await converse(memory, 10)
    await end_run(memory, chat_id, run_id)
    async with reading(memory.stub.WatchChat(memory_pb2.WatchChatRequest(chat_id=chat_id))) as items:
        runs = [await anext(items) for _ in range(11)]
        assert runs[-1].run_id == run_id
        outcome = await compact(memory, chat_id, run_id, summary_only=True)
        compaction = await anext(items)
        assert compaction.event.compaction_complete == outcome.last
        _, next_id = await memory.begin("later", chat_id)
        later = await anext(items)
        assert later.run_id == next_id
    numbers = [item.n for item in (*runs, compaction, later)]
    assert numbers == sorted(numbers)
    request = memory_pb2.WatchChatRequest(chat_id=chat_id, from_n=compaction.n)
    async with reading(memory.stub.WatchChat(request)) as items:
        assert [await anext(items), await anext(items)] == [compaction, later]


async def test_post_tokens_are_those_of_the_next_request(folder: Path) -> None:
    """By then the run's full tool results are shortened, and its reasoning and images are gone."""
    async with summarising(folder, Summariser(SUMMARY)) as memory:
        chat_id, run_id = await converse(memory, 20)
        work = [
            step_line(user("[image: a.png, uploads/a.png]", PICTURE)),
            step_line(reasoning(WORDS * 9), call("c", msg_id="m_0000000a"), result("c", WORDS * 40)),
        ]
        await memory.append(chat_id, run_id, *work)
        await end_run(memory, chat_id, run_id)
        compaction = (await compact(memory, chat_id, run_id, summary_only=True)).last
        _, run_id = await memory.begin("and now", chat_id)
        request = memory_pb2.LoadContextRequest(chat_id=chat_id, run_id=run_id, limits=LIMITS)
        window = await memory.stub.LoadContext(request)
    question = count_request(window.messages[-1:], (), "o200k_base") - count_request((), (), "o200k_base")
    assert compaction.post_tokens == window.tokens - question
