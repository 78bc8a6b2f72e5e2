"""What fills a context window and what was omitted from it: the parts by kind, and why."""

from pathlib import Path
from typing import Any

import pytest

from headrace.v1 import agent_pb2, common_pb2, llm_pb2, memory_pb2
from services.memory.compaction.prompt import SECTIONS, list_missing_sections, split_sections
from tests.support.memory import contexts
from tests.support.memory.contexts import limits
from tests.support.memory.messages import call, content, result
from tests.support.memory.summarising import COST, LIMITS, SUMMARY, WORDS, Summariser, compact, converse, summarising
from tests.support.memory.writing import Memory, new_id, query_line, run_line, step_line

pytestmark = pytest.mark.engines

TOOLS = [llm_pb2.ToolSchema(name="weather", description="The weather of a city", parameters='{"type":"object"}')]


async def load(
    memory: Memory, chat_id: str, run_id: str, window_tokens: int = 100_000, **fields: Any
) -> memory_pb2.LoadContextResponse:
    given: dict[str, Any] = {"system": "You help.", "tools": TOOLS, "limits": limits(window_tokens, 500)}
    return await contexts.load(memory, chat_id, run_id, with_parts=True, **given, **fields)


def map_parts(response: memory_pb2.LoadContextResponse) -> dict[tuple[str, str], agent_pb2.ContextPart]:
    return {(part.kind, part.state): part for part in response.parts}


async def test_every_token_of_a_request_belongs_to_a_part(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("What is the weather?")
    steps = step_line(call("c1", '{"city":"Paris"}'), result("c1", "20°"))
    await memory.append(chat_id, run_id, steps)
    response = await load(memory, chat_id, run_id, reminders=["Left: 3 calls."])
    parts = map_parts(response)
    assert [(part.kind, part.count, part.first_n, part.last_n) for part in response.parts] == [
        ("system", 1, 0, 0), ("tools", 1, 0, 0), ("messages", 2, 1, 2), ("reminder", 1, 2, 2), ("results", 1, 2, 2),
    ]  # fmt: skip
    assert sum(part.tokens for part in response.parts) == response.tokens
    assert all(part.tokens > 0 and not part.why for part in parts.values())
    assert not response.HasField("last_call")


async def test_last_call_reports_the_cached_tokens(memory: Memory) -> None:
    chat_id, run_id = await memory.begin()
    usage = common_pb2.Usage(input_tokens=100, output_tokens=5, cached_tokens=80, model_calls=1)
    await memory.append(chat_id, run_id, step_line(content("hi", usage=usage)), run_line())
    _, later = await memory.begin("more", chat_id)
    response = await load(memory, chat_id, later)
    assert (response.last_call.input_tokens, response.last_call.cached_tokens) == (100, 80)


async def test_parts_that_do_not_fit_are_reported_with_the_reason(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("go")
    for number in range(6):
        await memory.append(chat_id, run_id, step_line(call(f"c{number}"), result(f"c{number}", "word " * 400)))
    response = await load(memory, chat_id, run_id, 2_000)
    shown_tokens = sum(part.tokens for part in response.parts if part.state in ("shown", "shortened"))
    assert shown_tokens == response.tokens < 2_000
    omitted = [part for part in response.parts if part.state != "shown"]
    assert omitted
    assert all(part.why and part.first_n for part in omitted)


async def test_runs_beyond_the_caps_are_reported_as_left_out(memory: Memory) -> None:
    chat_id = new_id()
    for number in range(6):
        await memory.append(chat_id, new_id(), query_line(f"q{number}"), step_line(content(f"a{number}")), run_line())
    _, run_id = await memory.begin("now", chat_id)
    window = memory_pb2.WindowSettings(runs_max=2, older="drop")
    parts = map_parts(await load(memory, chat_id, run_id, window=window))
    omitted = parts["messages", "left_out"]
    assert omitted.count >= 2
    assert omitted.first_n == 1
    assert "caps" in omitted.why


async def test_summarised_parts_are_reported_with_their_kinds(folder: Path) -> None:
    async with summarising(folder, Summariser(SUMMARY)) as memory:
        chat_id, run_id = await converse(memory)
        before = await load(memory, chat_id, run_id)
        await compact(memory, chat_id, run_id)
        after = await load(memory, chat_id, run_id)
    parts = map_parts(after)
    (summary,) = [part for part in after.parts if part.kind == "summary"]
    assert summary.first_n == summary.last_n > parts["messages", "shown"].last_n
    summarised = [part for part in after.parts if part.state == "summarised"]
    assert {part.kind for part in summarised} == {"messages", "results"}
    assert {part.why for part in summarised} == {"a summary replaces it"}
    assert summarised[0].first_n == 1
    assert after.parts[-1].state == "summarised", "what has left stands last"
    assert sum(part.count for part in after.parts if part.kind in ("messages", "results")) == sum(
        part.count for part in before.parts if part.kind in ("messages", "results")
    ), "nothing is without a part"
    assert sum(part.tokens for part in after.parts if part.state != "summarised") == after.tokens


async def test_a_compaction_is_reported_with_its_receipt_and_its_cost(folder: Path) -> None:
    usage = common_pb2.Usage(input_tokens=100, output_tokens=5, cost_usd=0.5, model_calls=1)
    async with summarising(folder, Summariser(SUMMARY)) as memory:
        chat_id, run_id = await converse(memory)
        before = await load(memory, chat_id, run_id)
        inside = await compact(memory, chat_id, run_id)
        first = await load(memory, chat_id, run_id)
        await memory.append(chat_id, run_id, step_line(content(WORDS * 40)), run_line(usage=usage))
        await compact(memory, chat_id, run_id)
        _, later = await memory.begin("more", chat_id)
        second = await load(memory, chat_id, later)
        summary = await memory.call("GetSummary", chat_id=chat_id)
        await memory.call("EditSummary", chat_id=chat_id, n=summary.n, text="Only this.")
        edited = await load(memory, chat_id, later)
        plain = await memory.call("LoadContext", chat_id=chat_id, run_id=later, limits=LIMITS)
    assert (first.compaction.run_id, first.compaction.strategy, first.compaction.trigger) == (run_id, "summary", "auto")
    assert first.compaction.receipt == inside.last.receipt
    assert (first.compaction.pre_tokens, first.compaction.post_tokens) == (
        inside.last.pre_tokens, inside.last.post_tokens,
    )  # fmt: skip
    assert [section.title for section in first.compaction.sections] == ["", *SECTIONS, "Behind the summary"]
    assert all(section.tokens > 0 for section in first.compaction.sections)
    assert not first.HasField("between_runs_usage"), "what a run spends is the run's"
    assert second.compaction.run_id == ""
    assert second.between_runs_usage == COST
    assert (second.chat_usage.input_tokens, second.chat_usage.cost_usd, second.chat_usage.model_calls) == (
        1100,
        0.5,
        12,
    )
    assert (before.chat_usage.input_tokens, before.chat_usage.model_calls) == (100, 10)
    assert not before.HasField("compaction")
    assert not second.compaction.is_edited
    assert edited.compaction.is_edited
    assert [section.title for section in edited.compaction.sections] == [""]
    assert not plain.HasField("compaction")


def test_a_numbered_list_in_a_section_does_not_start_another_section() -> None:
    text = (
        "Hello.\n1. Intent: x\n2. Concepts\n3. Files:\n1. a\n2. b\n3. c\n4. d\n4. Errors and fixes: none\n9. Next: end"
    )
    assert split_sections(text) == [
        ("", "Hello."),
        ("Primary request and intent", "1. Intent: x"),
        ("Key concepts", "2. Concepts"),
        ("Files and code", "3. Files:\n1. a\n2. b\n3. c\n4. d"),
        ("Errors and fixes", "4. Errors and fixes: none"),
        ("Next step", "9. Next: end"),
    ]


@pytest.mark.parametrize(
    "form", ["## {}. {}", "**{}. {}**", "### Section {}: {}", "{} - {}", "- {}) {}", "{}\\. {}", "**{}**. {}"]
)
@pytest.mark.parametrize("digits", ["123456789", "一二三四五六七八九", "１２３４５６７８９", "١٢٣٤٥٦٧٨٩"])
def test_sections_are_found_in_any_style_and_script(form: str, digits: str) -> None:
    text = "\n".join(form.format(digit, "…") for digit in digits)
    assert list_missing_sections(text) == []
    assert [name for name, _ in split_sections(text)] == ["", *SECTIONS]
    assert list_missing_sections(text.partition("\n")[0]) == [2, 3, 4, 5, 6, 7, 8, 9]
