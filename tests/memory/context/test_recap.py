"""Recap: older results stand as insights, goal and open tasks are told again, all within its tokens."""

from __future__ import annotations

import pytest

from headrace.v1 import llm_pb2, memory_pb2
from services.runtime.tokens import count
from tests.memory.context.test_context import check_paired, text_of
from tests.memory.writing import Memory, call, new_id, result, step_line, user

RECAP = memory_pb2.RecapSettings(insights_window_size=4)
LONG = "the river is wide " * 20
PREVIEW = ("[weather] " + LONG)[: len("[weather] ") + 100]


async def work(memory: Memory, chat_id: str, run_id: str, index: int, text: str = LONG, *, ok: bool = True) -> None:
    step = step_line(call(f"t{index}", msg_id=new_id()), result(f"t{index}", text, ok=ok))
    await memory.append(chat_id, run_id, step)


def note(text: str, call_id: str) -> memory_pb2.LogLine:
    return memory_pb2.LogLine(insight=memory_pb2.NoteLine(text=text, tool_call_id=call_id))


def results(messages: list[llm_pb2.Message]) -> list[str]:
    return [text_of(message) for message in messages if message.role == "tool"]


async def test_a_window_of_older_results_stands_as_insights(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("the goal")
    for index in range(5):
        await work(memory, chat_id, run_id, index)
    await memory.append(chat_id, run_id, note("it is wide", "t1"))
    assert results(await memory.context(chat_id, run_id, recap=RECAP)) == [LONG] * 5
    await work(memory, chat_id, run_id, 5)
    context = await memory.context(chat_id, run_id, recap=RECAP)
    assert results(context) == [PREVIEW, "it is wide", PREVIEW, PREVIEW, LONG, LONG]
    check_paired(context)
    assert results(await memory.context(chat_id, run_id)) == [LONG] * 6, "off: as it was"


async def test_a_failed_result_has_no_insight_and_stays(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("the goal")
    for index in range(7):
        await work(memory, chat_id, run_id, index, ok=index != 1)
    context = await memory.context(chat_id, run_id, recap=RECAP)
    assert results(context) == [PREVIEW, LONG, PREVIEW, PREVIEW, PREVIEW, LONG, LONG]


async def test_the_model_is_reminded_of_goal_insights_and_open_tasks(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("the goal " + "g" * 300)
    for index in range(5):
        await work(memory, chat_id, run_id, index)
    plan = memory_pb2.Plan(plan_id="p")
    plan.tasks.add(task_id="00000001", description="swim", status="init")
    await memory.append(chat_id, run_id, note("it is wide", "t4"), step_line(user("go"), plan=plan))
    *_, asked = await memory.context(chat_id, run_id, recap=RECAP, reminders=["first"])
    goal = ("the goal " + "g" * 300)[:200]
    insights = "\n".join(f"- {PREVIEW}" for _ in range(3)) + "\n- it is wide"
    assert asked.content[-1].text == (
        f"<system_reminder>\nfirst\nGoal:\n- {goal}\n\nInsights:\n{insights}\n\n"
        "Open tasks:\n- 00000001: swim (init)\n</system_reminder>"
    )
    told = memory_pb2.LogLine(intent=memory_pb2.NoteLine(text="another goal"))
    await memory.append(chat_id, run_id, told)
    *_, asked = await memory.context(chat_id, run_id, recap=RECAP)
    assert "Goal:\n- another goal\n" in asked.content[-1].text


@pytest.mark.parametrize("tokens_max", [40, 60, 100, 150, 200, 400])
async def test_the_active_prompt_keeps_to_its_tokens(memory: Memory, tokens_max: int) -> None:
    chat_id, run_id = await memory.begin("find the source of the river " * 6)
    for index in range(5):
        await work(memory, chat_id, run_id, index)
    settings = memory_pb2.RecapSettings(active_prompt_tokens_max=tokens_max)
    limits = memory_pb2.ModelLimits(model="gpt-4o")
    system = "You are a careful traveller. " * 2
    *_, last = await memory.context(chat_id, run_id, recap=settings, limits=limits, system=system)
    part = last.content[-1].text
    assert part.startswith("<system_reminder>\nGoal")
    used = count.count_text(system, "o200k_base") + count.count_text(part, "o200k_base")
    assert tokens_max * 0.6 < used <= tokens_max or part.count("- [weather]") == 5


async def test_a_prompt_that_fills_it_alone_leaves_no_reminder(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("hi")
    settings = memory_pb2.RecapSettings(active_prompt_tokens_max=10)
    messages = await memory.context(chat_id, run_id, recap=settings, system="word " * 100)
    assert [len(message.content) for message in messages] == [1, 1]


async def test_between_replacements_the_prefix_stays_and_tokens_are_saved(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("the goal")
    changes, spent, without = 0, 0, 0
    before: list[bytes] = []
    for index in range(12):
        limits = memory_pb2.ModelLimits(model="gpt-4o")
        request = memory_pb2.LoadContextRequest(chat_id=chat_id, run_id=run_id, limits=limits)
        without += (await memory.stub.LoadContext(request)).tokens
        request.recap.SetInParent()
        loaded = await memory.stub.LoadContext(request)
        spent += loaded.tokens
        whole = [message.SerializeToString(deterministic=True) for message in loaded.messages]
        whole = whole[:-1] if index else []  # the reminder, which is one message of its own or a part of the first
        changes += whole[: len(before)] != before
        before = whole
        await work(memory, chat_id, run_id, index, text=LONG * 5)
    assert changes == 1
    assert spent < 0.8 * without
