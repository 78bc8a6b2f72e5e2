"""GetChat with include_lines: a run's lines come back as they were appended."""

import pytest

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2, llm_pb2, memory_pb2
from tests.support.memory.writing import USAGE, Memory, query_line, run_line

pytestmark = pytest.mark.engines


def make_step_with_everything() -> memory_pb2.LogLine:
    step = memory_pb2.StepLine(
        stage="execute", seq=1, task_id="0a0b0c0d", context_id="task-0a0b0c0d", system="Be brief."
    )
    step.plan.plan_id = "11223344"
    step.plan.tasks.add(task_id="0a0b0c0d", description="look", status="in_progress", group="a")
    step.events.first_seq, step.events.last_seq = 4, 12
    thought = step.messages.add(ts=1, msg_id="m_00000001", reasoning_id="r_1")
    thought.message.CopyFrom(llm_pb2.Message(role="assistant", reasoning_content="hm"))
    thought.events.first_seq, thought.events.last_seq = 4, 6
    cut = step.messages.add(ts=2, msg_id="m_00000001", tool_id="call_1", finish_reason="length", usage=USAGE)
    cut.message.CopyFrom(llm_pb2.Message(role="assistant", provider_state='{"signature":"x"}'))
    cut.message.tool_calls.add(id="call_1", name="look", arguments='{"at":')
    cut.timing.started_at, cut.timing.ended_at = 2, 3
    called = step.messages.add(ts=3, msg_id="m_00000002", tool_id="call_2", tool_params='{"at":12345678901234567890}')
    called.message.CopyFrom(llm_pb2.Message(role="assistant"))
    called.message.tool_calls.add(id="call_2", name="look", arguments='{"at":"{{look.n}}"}')
    result = step.messages.add(ts=4, tool_id="call_2", ok=False)
    result.message.CopyFrom(llm_pb2.Message(role="tool", name="look", tool_call_id="call_2"))
    result.message.content.add(text="nothing\n\n")
    return memory_pb2.LogLine(step=step)


def make_notice() -> memory_pb2.LogLine:
    event = agent_pb2.AgentDelta(seq=13, timestamp=5, task_id="0a0b0c0d")
    event.run_notice.code, event.run_notice.message = "CODE", "text"
    return memory_pb2.LogLine(event=memory_pb2.EventLine(context_id="task-0a0b0c0d", event=event))


async def test_lines_are_returned_as_they_were_appended(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("hello")
    insight = memory_pb2.LogLine(insight=memory_pb2.NoteLine(text="seen", tool_call_id="call_2"))
    intent = memory_pb2.LogLine(intent=memory_pb2.NoteLine(context_id="main", text="goal"))
    appended = [make_step_with_everything(), make_notice(), insight, intent, run_line()]
    await memory.append(chat_id, run_id, *appended)
    await memory.begin_and_end("another run", chat_id)
    lines = (await memory.chat(run_id=run_id, include_lines=True)).lines
    assert lines[0].query.query.message == "hello"
    assert lines[0].query.agent_hash == query_line("hello").query.agent_hash
    assert list(lines[1:]) == appended


async def test_lines_of_a_whole_chat_are_refused(memory: Memory) -> None:
    chat_id, _ = await memory.begin("hello")
    with pytest.raises(InvalidRequest, match="runId"):
        await memory.chat(chat_id=chat_id, include_lines=True)
