"""Conversations of other programs that come with a query: every view of them keeps roles, order and pairs."""

import json
import re
from typing import Any

from services.memory.context.pairing import INTERRUPTED
from tests.support.memory.contexts import check_paired, limits, load, text_of, to_tuples
from tests.support.memory.messages import call, content, result
from tests.support.memory.writing import Memory, new_id, query_line, run_line, step_line

BROUGHT: dict[str, Any] = {
    "history": [
        {"role": "system", "content": "Speak French."},
        {"role": "user", "content": "Where am I?"},
        {"role": "assistant", "content": "I look.", "tool_calls": [{"id": "a-1", "name": "f", "arguments": "{}"}]},
        {"role": "tool", "tool_call_id": "a-1", "content": "Lyon"},
        {"role": "system", "content": "Be brief."},
        {"role": "assistant", "content": "In Lyon."},
    ],
    "progress": [
        {
            "role": "assistant",
            "tool_calls": [{"id": "b", "name": "f", "arguments": "[1]"}, {"id": "c", "name": "g", "arguments": "{}"}],
        },
        {"role": "tool", "tool_call_id": "b", "content": "12 °C"},
    ],
}
EXPECTED = [
    ("system", "You are\n\nSpeak French.\n\nBe brief."),
    ("user", "Where am I?"),
    ("assistant", "I look.", (("a-1", "{}"),)),
    ("tool", "Lyon", "a-1"),
    ("assistant", "In Lyon."),
    ("user", "How warm?"),
    ("assistant", "", (("b", "{}"), ("c", "{}"))),
    ("tool", "12 °C", "b"),
    ("tool", INTERRUPTED, "c"),
]


async def test_earlier_messages_surround_the_query_in_their_roles_and_are_paired(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("How warm?", **BROUGHT)
    messages = await memory.context(chat_id, run_id, system="You are")
    assert to_tuples(messages) == EXPECTED
    check_paired(messages[1:])
    await memory.append(chat_id, run_id, step_line(call("b")), step_line(result("b", "13 °C")))
    assert to_tuples(await memory.context(chat_id, run_id, system="You are"))[len(EXPECTED) :] == [
        ("assistant", "", (("b", "{}"),)),
        ("tool", "13 °C", "b"),
    ]


async def test_ids_a_provider_refuses_are_rewritten_and_stay_distinct(memory: Memory) -> None:
    given = ["a.b", "a_b", "a:b", "x" * 41, "x" * 42, "é"]
    answers = [
        {"role": "assistant", "tool_calls": [{"id": id, "name": "f", "arguments": "{}"} for id in given]},
        *({"role": "tool", "tool_call_id": id, "content": id} for id in reversed(given)),
    ]
    chat_id, run_id = await memory.begin("And now?", history=answers)
    messages = await memory.context(chat_id, run_id)
    ids = [call.id for call in messages[0].tool_calls]
    check_paired(messages)
    assert [text_of(message) for message in messages[1:-1]] == given
    assert len(set(ids)) == len(given)
    assert ids[1] == "a_b"
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", id) for id in ids)
    assert await memory.context(chat_id, run_id) == messages


async def test_later_runs_see_earlier_messages_and_keep_the_system_prompts(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("How warm?", **BROUGHT)
    await memory.append(chat_id, run_id, step_line(content("12.")), run_line())
    for number in range(12):
        _, run_id = await memory.begin(f"question {number}", chat_id)
        messages = to_tuples(await memory.context(chat_id, run_id, system="You are"))
        assert messages[0] == EXPECTED[0]
        assert number or messages[1:] == [*EXPECTED[1:], ("assistant", "12."), ("user", "question 0")]
        await memory.append(chat_id, run_id, step_line(content("yes")), run_line())


async def test_earlier_messages_are_counted_and_omitted_like_the_chats_own(memory: Memory) -> None:
    long = [
        {"role": role, "content": f"{role} {n} " + "word " * 200} for n in range(20) for role in ("user", "assistant")
    ]
    line = query_line("And now?", history=[{"role": "system", "content": "Stay."}, *long])
    chat_id, run_id = new_id(), new_id()
    narrow = limits(4_000, 500)
    before = await load(memory, chat_id, run_id, limits=narrow, pending_query=line.query.query)
    await memory.append(chat_id, run_id, line)
    after = await load(memory, chat_id, run_id, limits=narrow)
    assert before == after
    assert after.compaction_due
    messages = to_tuples(after.messages)
    assert messages[0] == ("system", "Stay.")
    assert messages[-1] == ("user", "And now?")
    assert 3 < len(messages) < 30
    assert messages[1][0] == "user"


async def test_raw_messages_include_earlier_messages_in_order(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("How warm?", **BROUGHT)
    await memory.append(chat_id, run_id, step_line(content("12.")), run_line())
    raw = json.loads((await memory.chat(chat_id=chat_id, include_raw_messages=True)).raw_messages)
    assert [message["role"] for message in raw] == [
        *("system", "user", "assistant", "tool", "system", "assistant", "user", "assistant", "tool", "assistant")
    ]
    assert raw[2]["tool_calls"][0]["id"] == "a-1"
    assert raw[6]["content"] == [{"type": "text", "text": "How warm?"}]


async def test_an_owner_that_takes_over_the_run_receives_the_earlier_messages(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("How warm?", **BROUGHT)
    lines = (await memory.chat(chat_id=chat_id, run_id=run_id, include_lines=True)).lines
    assert lines[0].query.query.history[2].tool_calls[0].id == "a-1"
    assert [message.role for message in lines[0].query.query.progress] == ["assistant", "tool"]
