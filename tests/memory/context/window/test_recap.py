"""Recap: older results are replaced by insights, and the goal and open tasks are repeated, all within its token
limit."""

import pytest

from headrace.v1 import llm_pb2, memory_pb2
from services.runtime.tokens import count
from tests.support.memory.contexts import check_paired, text_of
from tests.support.memory.messages import call, content, result, user
from tests.support.memory.writing import Memory, new_id, run_line, step_line

RECAP = memory_pb2.RecapSettings(insights_window_size=4)
LONG = "the river is wide " * 80
"""Some 320 tokens."""

STEPS = 8


def preview(index: int) -> str:
    return f"{'[weather] ' + LONG[:100]} [{len(LONG):,} characters: read_result t{index}]"


async def work(memory: Memory, chat_id: str, run_id: str, index: int, text: str = LONG, *, ok: bool = True) -> None:
    step = step_line(call(f"t{index}", msg_id=new_id()), result(f"t{index}", text, ok=ok))
    await memory.append(chat_id, run_id, step)


def note(text: str, call_id: str) -> memory_pb2.LogLine:
    return memory_pb2.LogLine(insight=memory_pb2.NoteLine(text=text, tool_call_id=call_id))


def list_results(messages: list[llm_pb2.Message]) -> list[str]:
    return [text_of(message) for message in messages if message.role == "tool"]


async def test_a_batch_of_older_results_is_replaced_by_insights(memory: Memory) -> None:
    chat_id, run_id = await memory.begin_with(note("it is wide", "t1"), message="the goal")
    for index in range(6):
        await work(memory, chat_id, run_id, index)
    assert list_results(await memory.context(chat_id, run_id, recap=RECAP)) == [LONG] * 6
    await work(memory, chat_id, run_id, 6)
    context = await memory.context(chat_id, run_id, recap=RECAP)
    expected = [preview(index) for index in range(6)]
    expected[1] = f"it is wide [{len(LONG):,} characters: read_result t1]"
    assert list_results(context) == [*expected, LONG]
    check_paired(context)
    assert list_results(await memory.context(chat_id, run_id)) == [LONG] * 7, "off: as it was"


@pytest.mark.parametrize(
    ("text", "name", "ok"),
    [(LONG, "weather", False), ("short", "weather", True), (LONG, "_plan_get_", True), (LONG, "todo_read", True)],
)
async def test_failures_short_results_and_plans_are_not_replaced(
    memory: Memory, text: str, name: str, ok: bool
) -> None:
    chat_id, run_id = await memory.begin("the goal")
    for index in range(STEPS):
        if index == 1:
            step = step_line(call("t1", name=name, msg_id=new_id()), result("t1", text, name=name, ok=ok))
            await memory.append(chat_id, run_id, step)
        else:
            await work(memory, chat_id, run_id, index)
    texts = list_results(await memory.context(chat_id, run_id, recap=RECAP))
    assert texts[:3] == [preview(0), text, preview(2)]


async def test_near_the_last_step_no_more_results_are_replaced(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("the goal")
    for index in range(STEPS):
        await work(memory, chat_id, run_id, index)
    settings = memory_pb2.RecapSettings(insights_window_size=4, steps_max=STEPS)
    assert list_results(await memory.context(chat_id, run_id, recap=settings)) == [LONG] * STEPS


END = "\n</system_reminder>"


async def test_the_goal_and_open_tasks_are_repeated_when_results_are_replaced(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("the goal " + "g" * 300)
    plan = memory_pb2.Plan(plan_id="p")
    plan.tasks.add(task_id="00000001", description="swim", status="init")
    await memory.append(chat_id, run_id, step_line(user("go"), plan=plan))
    *_, last_message = await memory.context(chat_id, run_id, recap=RECAP, reminders=["first"])
    assert last_message.content[-1].text == "<system_reminder>\nfirst\n</system_reminder>"
    for index in range(STEPS):
        await work(memory, chat_id, run_id, index)
    *_, last_message = await memory.context(chat_id, run_id, recap=RECAP, reminders=["first"])
    tasks = f"Open tasks:\n- 00000001: swim (init){END}"
    expected = f"<system_reminder>\n{tasks.removesuffix(END)}\nfirst{END}"
    assert last_message.content[-1].text == expected, "the goal is there, word for word"
    await memory.append(chat_id, run_id, memory_pb2.LogLine(intent=memory_pb2.NoteLine(text="another goal")))
    *_, last_message = await memory.context(chat_id, run_id, recap=RECAP)
    assert last_message.content[-1].text == f"<system_reminder>\nGoal:\n- another goal\n\n{tasks}"


@pytest.mark.parametrize("tokens_max", [10, 40, 60, 100, 150, 200, 400])
async def test_the_active_prompt_stays_within_its_token_limit(memory: Memory, tokens_max: int) -> None:
    chat_id, run_id = await memory.begin("hi")
    intent = memory_pb2.LogLine(intent=memory_pb2.NoteLine(text="find the source of the river " * 6))
    await memory.append(chat_id, run_id, intent)
    for index in range(STEPS):
        await work(memory, chat_id, run_id, index)
    settings = memory_pb2.RecapSettings(active_prompt_tokens_max=tokens_max)
    limits = memory_pb2.ModelLimits(model="gpt-4o")
    system = "You are a careful traveller. " * 2
    *_, last = await memory.context(chat_id, run_id, recap=settings, limits=limits, system=system)
    if tokens_max == 10:
        assert last.role == "tool", "the prompt alone fills it"
        return
    part = last.content[-1].text
    used = count.count_text(system, "o200k_base") + count.count_text(part, "o200k_base")
    assert tokens_max * 0.6 < used <= tokens_max or "[…]" not in part


@pytest.mark.parametrize("recap", [RECAP, None], ids=["on", "off"])
async def test_the_goal_and_tasks_of_an_ended_run_are_declared_over_once(
    memory: Memory, recap: memory_pb2.RecapSettings | None
) -> None:
    chat_id, run_id = await memory.begin("the goal")
    plan = memory_pb2.Plan(plan_id="p")
    plan.tasks.add(task_id="00000001", description="swim", status="init")
    await memory.append(chat_id, run_id, step_line(user("go"), plan=plan))
    for index in range(STEPS):
        await work(memory, chat_id, run_id, index)
    loaded = await memory.call("LoadContext", chat_id=chat_id, run_id=run_id, recap=RECAP)
    assert "Open tasks" in str(loaded.reminded)
    await memory.append(chat_id, run_id, step_line(content("done"), reminders=loaded.reminded), run_line())
    for number, expected in enumerate(["The goal and the open tasks that were named before no longer hold.", ""]):
        _, next_id = await memory.begin(f"and now? {number}", chat_id)
        loaded = await memory.call("LoadContext", chat_id=chat_id, run_id=next_id, recap=recap)
        assert "".join(reminder.text for reminder in loaded.reminded) == expected
        await memory.append(chat_id, next_id, step_line(content("done"), reminders=loaded.reminded), run_line())
