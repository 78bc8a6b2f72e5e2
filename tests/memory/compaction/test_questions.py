"""The user's question stays in the requests of a long run, even after later messages of role user: uploaded files, and
instructions a mode adds.
"""

from pathlib import Path

import pytest

from headrace.v1 import agent_pb2, memory_pb2
from tests.support.memory.contexts import limits, text_of
from tests.support.memory.messages import call, result, user
from tests.support.memory.summarising import SUMMARY, Summariser, compact, converse, summarising, work
from tests.support.memory.writing import Memory, event_line, step_line

QUESTION = "How many boats are in the harbour?"
STEER = "Count the canoes, too."
FILE = "[File: boats.txt]\n" + "A boat of oak. " * 200
TASK = "Task 3 has ended: completed.\nIts result: 4 boats."


def steer(text: str) -> memory_pb2.LogLine:
    return event_line(request_steer=agent_pb2.RequestSteer(message=text))


FOLLOW_UPS = {
    "upload": ([step_line(user(FILE))], QUESTION),
    "mode": ([step_line(user(TASK), stage="execute")], QUESTION),
    "steer": ([steer(STEER), step_line(user(STEER))], STEER),
    "steer before a mode's": ([steer(STEER), step_line(user(STEER)), step_line(user(TASK), stage="execute")], STEER),
}


async def begin(memory: Memory, follow_up: str) -> tuple[str, str]:
    chat_id, run_id = await converse(memory, 3, QUESTION)
    await memory.append(chat_id, run_id, *FOLLOW_UPS[follow_up][0])
    await work(memory, chat_id, run_id, 40)
    return chat_id, run_id


@pytest.mark.parametrize("follow_up", FOLLOW_UPS)
async def test_the_question_is_kept_next_to_the_summary_of_its_run(folder: Path, follow_up: str) -> None:
    async with summarising(folder, Summariser(SUMMARY)) as memory:
        chat_id, run_id = await begin(memory, follow_up)
        compaction = await compact(memory, chat_id, run_id)
        assert compaction.kinds[-1] == "complete", compaction.last
        summary, question, *_ = await memory.context(chat_id, run_id)
    expected = FOLLOW_UPS[follow_up][1]
    assert text_of(question) == expected
    assert f"Intent:\n- {expected}\n" in text_of(summary)


@pytest.mark.parametrize("follow_up", FOLLOW_UPS)
async def test_the_question_is_kept_when_older_messages_do_not_fit(memory: Memory, follow_up: str) -> None:
    chat_id, run_id = await begin(memory, follow_up)
    long = step_line(call("long", name="look", msg_id="m_0000ffff"), result("long", "seen " * 4_000, name="look"))
    await memory.append(chat_id, run_id, long)
    messages = await memory.context(chat_id, run_id, limits=limits(3_000, 500, "gpt-4o"))
    assert FOLLOW_UPS[follow_up][1] in [text_of(message) for message in messages]
