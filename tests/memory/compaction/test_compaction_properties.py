"""After any order of appends, cancels, questions, compactions, reverts, rollbacks, forks and deletions the next request
is valid, and a restart does not change it.
"""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headrace.v1 import llm_pb2, memory_pb2
from services.memory.context.view import UNBOUNDED
from tests.support.memory.any_chat import LIMITS, Chat, check_compacted, events
from tests.support.memory.contexts import check_paired, log_messages, text_of
from tests.support.memory.messages import call, content, result
from tests.support.memory.summarising import SUMMARY, Summariser, compact, summarising
from tests.support.memory.writing import Memory, new_id, step_line
from tests.support.pairing import assert_paired
from tests.support.tiers import examples

LONG = (content("word " * 200, msg_id="m_long"), call("t_last", msg_id="m_last"), result("t_last", "long " * 200))


def openai_form(messages: list[llm_pb2.Message]) -> list[dict[str, Any]]:
    return [
        {
            "role": message.role,
            "tool_call_id": message.tool_call_id,
            "tool_calls": [{"id": c.id} for c in message.tool_calls],
        }
        for message in messages
    ]


@given(st.lists(st.lists(events, max_size=8), min_size=1, max_size=3))
async def test_any_order_of_events_leaves_valid_requests(lives: list[list[Any]]) -> None:
    """Each inner list is what happens between two starts of the service."""
    summariser = Summariser(SUMMARY)
    before: list[list[llm_pb2.Message]] = []
    chat: Chat | None = None
    with tempfile.TemporaryDirectory() as name:
        for life_events in [*lives, []]:
            async with summarising(Path(name), summariser, chat_k=UNBOUNDED.runs_max) as memory:
                if chat is None:
                    chat = Chat(memory, summariser)
                    for _ in range(3):
                        await chat.ask()
                else:
                    chat.memory = memory
                    assert await chat.contexts() == before, "a restart changes nothing"
                for event in life_events:
                    await chat.meet(*event)
                    for context in await chat.contexts():
                        check_paired(context)
                        assert_paired(openai_form(context))
                before = await chat.contexts()


async def grow(memory: Memory, chat_id: str, run_id: str, steps: list[list[memory_pb2.LogMessage]]) -> None:
    """Append `steps` and enough other messages that there is something to compact."""
    await memory.append(chat_id, run_id, step_line(content("word " * 600, msg_id=new_id())))
    for messages in steps:
        await memory.append(chat_id, run_id, step_line(*messages))
    await memory.append(chat_id, run_id, step_line(*LONG))


@settings(max_examples=examples(12))
@given(st.lists(st.lists(log_messages, min_size=1, max_size=4), min_size=10, max_size=20), st.integers(1, 2))
async def test_after_a_crash_between_the_two_lines_the_context_is_uncompacted(
    steps: list[list[memory_pb2.LogMessage]], times: int
) -> None:
    summariser = Summariser(SUMMARY)
    with tempfile.TemporaryDirectory() as name:
        async with summarising(Path(name), summariser) as memory:
            chat_id, run_id = await memory.begin("hi " * 50)
            file = Path(name) / f"{chat_id}.json"
            half = len(steps) // 2
            if times == 2:
                await grow(memory, chat_id, run_id, steps[:half])
                assert (await compact(memory, chat_id, run_id, limits=LIMITS)).kinds[-1] == "complete"
            await grow(memory, chat_id, run_id, steps[half:])
            before, uncompacted = await memory.context(chat_id, run_id), file.read_bytes()
            compaction = await compact(memory, chat_id, run_id, limits=LIMITS)
            assume(compaction.kinds[-1] == "complete")  # short steps may leave nothing to gain
            after, whole = await memory.context(chat_id, run_id), file.read_bytes()
        check_compacted(compaction, before, after)
        boundary = whole.index(b"\n", len(uncompacted)) + 1
        for cut in (boundary, boundary - 1, (boundary + len(whole)) // 2, len(whole) - 1):
            file.write_bytes(whole[:cut])
            async with summarising(Path(name), summariser) as memory:
                assert await memory.context(chat_id, run_id) == before
                compaction = await compact(memory, chat_id, run_id, limits=LIMITS)
                assert compaction.kinds[-1] == "complete", "it can be done again"
                assert await memory.context(chat_id, run_id) == after


@settings(max_examples=examples(15))
@given(st.data())
async def test_any_prefix_of_a_compacted_log_and_a_user_message_make_a_valid_request(data: st.DataObject) -> None:
    summariser = Summariser(SUMMARY)
    with tempfile.TemporaryDirectory() as name:
        async with summarising(Path(name), summariser) as memory:
            chat = Chat(memory, summariser)
            await chat.ask()
            for _ in range(2):
                for _ in range(6):
                    pieces = data.draw(st.lists(log_messages, min_size=1, max_size=4))
                    await memory.append(chat.id, chat.runs[0], step_line(*pieces))
                await chat.compact(chat.runs[0], {}, SUMMARY)
        file = Path(name) / f"{chat.id}.json"
        whole = file.read_bytes()
        for cut in [index + 1 for index, byte in enumerate(whole) if byte == 10]:
            file.write_bytes(whole[:cut])
            async with summarising(Path(name), summariser) as memory:
                _, run_id = await memory.begin("and now", chat.id)
                context = await memory.context(chat.id, run_id)
                check_paired(context)
                assert text_of(context[-1]) == "and now"
