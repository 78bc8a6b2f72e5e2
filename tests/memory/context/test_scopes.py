"""Which lines plan tasks and sub-agents see, and what the planner and later runs see of a plan."""

from collections.abc import Sequence

from headrace.v1 import llm_pb2
from tests.support.memory.contexts import left_out, limits
from tests.support.memory.messages import call, content, result, user
from tests.support.memory.writing import Memory, run_line, step_line

TASK, OTHER = "task-0a0b0c0d", "task-11111111"
AGENT = "subagent-0a0b0c0d"


def list_texts(messages: Sequence[llm_pb2.Message]) -> list[str]:
    """Return the text of each message, or the names of its calls."""
    return [
        "".join(part.text for part in message.content) or ",".join(call.name for call in message.tool_calls)
        for message in messages
    ]


async def begin_with_plan(memory: Memory) -> tuple[str, str]:
    """Begin a run that has made a plan."""
    chat_id, run_id = await memory.begin("trip to Paris")
    plan = step_line(call("call_p", name="_plan_add_tasks_"), result("call_p", "two tasks"), stage="plan")
    await memory.append(chat_id, run_id, plan)
    return chat_id, run_id


async def test_a_task_sees_the_plan_before_it_started_and_its_own_lines(memory: Memory) -> None:
    chat_id, run_id = await begin_with_plan(memory)
    initial_texts = list_texts(await memory.context(chat_id, run_id, context_id=TASK))
    assert initial_texts == ["trip to Paris", "_plan_add_tasks_", "two tasks"]
    for context_id in (TASK, OTHER):
        step = step_line(user(f"do {context_id}"), stage="execute", context_id=context_id)
        await memory.append(chat_id, run_id, step)
    await memory.append(chat_id, run_id, step_line(user("late report"), stage="execute"))
    texts = list_texts(await memory.context(chat_id, run_id, context_id=TASK))
    assert texts == ["trip to Paris", "_plan_add_tasks_", "two tasks", f"do {TASK}"]
    assert list_texts(await memory.context(chat_id, run_id, context_id=OTHER))[-1] == f"do {OTHER}"


async def test_the_planner_sees_reports_but_not_the_work_of_its_tasks(memory: Memory) -> None:
    chat_id, run_id = await begin_with_plan(memory)
    work = step_line(user("do it"), call("call_1"), result("call_1"), stage="execute", context_id=TASK)
    await memory.append(chat_id, run_id, work, step_line(user("report: done"), stage="execute"))
    texts = list_texts(await memory.context(chat_id, run_id))
    assert texts == ["trip to Paris", "_plan_add_tasks_", "two tasks", "report: done"]


async def test_later_runs_see_the_query_and_the_final_answer_and_can_read_the_rest(memory: Memory) -> None:
    chat_id, run_id = await begin_with_plan(memory)
    report, answer = step_line(user("report"), stage="execute"), step_line(content("Have fun."), stage="summary")
    await memory.append(chat_id, run_id, report, answer, run_line())
    _, next_id = await memory.begin("thanks", chat_id)
    question = f"trip to Paris\n\n{left_out(2, 3)}"
    assert list_texts(await memory.context(chat_id, next_id)) == [question, "Have fun.", "thanks"]
    earlier = list_texts(await memory.context(chat_id, next_id, context_id=TASK))
    assert earlier == [question, "Have fun.", "thanks"]
    loaded = await memory.call("LoadContext", chat_id=chat_id, run_id=next_id, limits=limits(), with_parts=True)
    assert loaded.has_left, "the tools that read it are offered"
    parts = [(part.kind, part.state, part.first_n, part.last_n) for part in loaded.parts if part.state != "shown"]
    assert parts == [("messages", "left_out", 2, 3), ("results", "left_out", 2, 2)]
    history = (await memory.call("ReadHistory", chat_id=chat_id, run_id=next_id, first_n=2, last_n=3)).messages
    assert [message.text for message in history] == ["", "two tasks", "report"]


async def test_a_candidate_answer_under_verification_is_in_no_context(memory: Memory) -> None:
    chat_id, run_id = await memory.begin_with(step_line(content("5"), stage="verify"), message="2 + 2?")
    assert list_texts(await memory.context(chat_id, run_id)) == ["2 + 2?"]
    await memory.append(chat_id, run_id, step_line(content("4", msg_id="m_00000002"), stage="react"), run_line())
    _, next_id = await memory.begin("sure?", chat_id)
    assert list_texts(await memory.context(chat_id, next_id)) == ["2 + 2?", "4", "sure?"]


async def test_a_sub_agent_sees_its_own_lines_and_its_tasks_see_those_of_its_plan(memory: Memory) -> None:
    chat_id, run_id = await begin_with_plan(memory)
    inner = f"{AGENT}.{TASK}"
    await memory.append(chat_id, run_id, step_line(user("goal"), context_id=AGENT))
    await memory.append(chat_id, run_id, step_line(user("sub-task"), stage="execute", context_id=inner))
    assert list_texts(await memory.context(chat_id, run_id, context_id=AGENT)) == ["goal"]
    assert list_texts(await memory.context(chat_id, run_id, context_id=inner)) == ["goal", "sub-task"]
    assert list_texts(await memory.context(chat_id, run_id)) == ["trip to Paris", "_plan_add_tasks_", "two tasks"]
