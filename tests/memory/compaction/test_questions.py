"""What a user has asked stays in a long run's requests, whatever else stands in messages of role user since: files that
were uploaded, and what a mode tells its model.
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


SAID = {
    "upload": ([step_line(user(FILE))], QUESTION),
    "mode": ([step_line(user(TASK), stage="execute")], QUESTION),
    "steer": ([steer(STEER), step_line(user(STEER))], STEER),
    "steer before a mode's": ([steer(STEER), step_line(user(STEER)), step_line(user(TASK), stage="execute")], STEER),
}


async def begin(memory: Memory, said: str) -> tuple[str, str]:
    chat_id, run_id = await converse(memory, 3, QUESTION)
    await memory.append(chat_id, run_id, *SAID[said][0])
    await work(memory, chat_id, run_id, 40)
    return chat_id, run_id


@pytest.mark.parametrize("said", SAID)
async def test_the_question_stays_beside_the_summary_of_its_run(folder: Path, said: str) -> None:
    async with summarising(folder, Summariser(SUMMARY)) as memory:
        chat_id, run_id = await begin(memory, said)
        done = await compact(memory, chat_id, run_id)
        assert done.kinds[-1] == "complete", done.last
        summary, asked, *_ = await memory.context(chat_id, run_id)
    wanted = SAID[said][1]
    assert text_of(asked) == wanted
    assert f"Intent:\n- {wanted}\n" in text_of(summary)


@pytest.mark.parametrize("said", SAID)
async def test_the_question_stays_where_older_messages_have_no_room(memory: Memory, said: str) -> None:
    chat_id, run_id = await begin(memory, said)
    long = step_line(call("long", name="look", msg_id="m_0000ffff"), result("long", "seen " * 4_000, name="look"))
    await memory.append(chat_id, run_id, long)
    shown = await memory.context(chat_id, run_id, limits=limits(3_000, 500, "gpt-4o"))
    assert SAID[said][1] in [text_of(message) for message in shown]
