"""The view of a chat that users see: GetChat over a real service."""

from typing import Any

import orjson
import pytest

from headrace.errors import InvalidRequest, NotFound
from headrace.v1 import agent_pb2, common_pb2
from tests.support.memory.messages import call, content, reasoning, result, user
from tests.support.memory.writing import USAGE, Memory, event_line, events, new_id, run_line, step_line

pytestmark = pytest.mark.engines


def list_kinds(found: Any) -> list[tuple[int, str]]:
    return [(event.seq, event.WhichOneof("payload")) for event in found]


async def test_a_run_is_returned_as_snapshots_in_the_order_of_their_seq(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("weather?", params='{"big": 12345678901234567890123}', stream=True)
    notice = agent_pb2.RunNotice(run_id=run_id, code="TOOL_UNAVAILABLE", message="no maps")
    await memory.append(chat_id, run_id, event_line(seq=4, timestamp=7, run_notice=notice))
    await memory.append(
        chat_id,
        run_id,
        step_line(
            reasoning("hm", reasoning_id="r_1", events=events(9)),
            content("Let me look.", content_id="c_1", events=events(12)),
            call("t1", '{"city": "Oslo"}', events=events(16), tool_params='{"city": "Oslo", "day": 1}'),
            call("t2", '{"cut', events=events(19)),
            task_id="12345678",
        ),
    )
    await memory.append(chat_id, run_id, step_line(result("t2", "bad arguments", events=events(20), ok=False)))
    await memory.append(chat_id, run_id, step_line(result("t1", "sun", events=events(18))))
    await memory.append(chat_id, run_id, step_line(user("a repair prompt"), content("a draft")))
    await memory.append(chat_id, run_id, run_line("completed", 21, finish_reason="length"))

    chat = await memory.chat(chat_id=chat_id)
    assert list_kinds(chat.events) == [
        (1, "request_query"), (2, "chat_start"), (3, "run_start"), (4, "run_notice"), (9, "reasoning_snapshot"),
        (12, "content_snapshot"), (16, "tool_snapshot"), (18, "tool_result"), (19, "tool_snapshot"),
        (20, "tool_result"), (21, "run_complete"),
    ]  # fmt: skip
    by_seq = {event.seq: event for event in chat.events}
    query = by_seq[1].request_query
    assert (query.message, query.params, query.stream) == ("weather?", '{"big": 12345678901234567890123}', True)
    assert (query.chat_id, query.agent_key, query.role) == (chat_id, "writer", "user")
    assert by_seq[2].chat_start == agent_pb2.ChatStart(chat_id=chat_id, chat_name="weather?")
    assert by_seq[3].run_start == agent_pb2.RunStart(run_id=run_id, chat_id=chat_id, agent_key="writer")
    assert by_seq[4] == agent_pb2.AgentDelta(seq=4, timestamp=7, run_notice=notice)
    assert by_seq[9].reasoning_snapshot == agent_pb2.ReasoningSnapshot(reasoning_id="r_1", run_id=run_id, text="hm")
    assert (by_seq[9].task_id, by_seq[9].timestamp) == ("12345678", 1_700_000_000_000)
    assert by_seq[16].tool_snapshot == agent_pb2.ToolSnapshot(
        tool_id="t1",
        run_id=run_id,
        tool_name="weather",
        tool_params='{"city": "Oslo", "day": 1}',
        arguments='{"city": "Oslo"}',
    )
    assert not by_seq[19].tool_snapshot.HasField("arguments"), "what is no JSON cannot stand as JSON"
    assert by_seq[18].tool_result == agent_pb2.ToolResult(tool_id="t1", result="sun", ok=True)
    assert not by_seq[20].tool_result.ok
    assert by_seq[21].run_complete == agent_pb2.RunComplete(run_id=run_id, finish_reason="length", usage=USAGE)


@pytest.mark.parametrize(
    ("state", "payload"), [("completed", "run_complete"), ("cancelled", "run_cancel"), ("failed", "run_error")]
)
async def test_each_ended_run_has_its_terminal_event_and_an_unfinished_one_has_none(
    memory: Memory, state: str, payload: str
) -> None:
    chat_id, run_id = await memory.begin()
    error = common_pb2.Failure(code="OVERLOADED", message="busy", retriable=True, details='{"n": 1}')
    await memory.append(chat_id, run_id, run_line(state, 4, error=error if state == "failed" else None))
    await memory.begin("next", chat_id)
    found = (await memory.chat(chat_id=chat_id)).events
    assert list_kinds(found) == [
        (1, "request_query"), (2, "chat_start"), (3, "run_start"), (4, payload), (1, "request_query"), (2, "run_start"),
    ]  # fmt: skip
    end = getattr(found[3], payload)
    assert (end.run_id, end.usage) == (run_id, USAGE)
    if state == "failed":
        assert end.error == error


async def test_a_subagents_events_carry_its_id(memory: Memory) -> None:
    chat_id, run_id = await memory.begin()
    answer = content("a", content_id="c", events=events(6))
    step = step_line(answer, context_id="subagent-0a0b0c0d.task-0a0b0c0e", task_id="0a0b0c0e")
    await memory.append(chat_id, run_id, step)
    event = (await memory.chat(chat_id=chat_id)).events[3]
    assert (event.subagent_id, event.task_id) == ("subagent-0a0b0c0d", "0a0b0c0e")


async def test_a_run_can_be_found_by_its_id_alone(memory: Memory) -> None:
    chat_id, _ = await memory.begin_with(run_line(seq=4), message="one")
    _, second = await memory.begin("two", chat_id)
    chat = await memory.chat(run_id=second)
    assert (chat.chat_id, chat.chat_name) == (chat_id, "one")
    assert list_kinds(chat.events) == [(1, "request_query"), (2, "run_start")]
    assert await memory.chat(chat_id=chat_id, run_id=second) == chat


async def test_an_unknown_chat_or_run_is_not_found(memory: Memory) -> None:
    _, run_id = await memory.begin()
    for fields in ({"chat_id": new_id()}, {"run_id": new_id()}, {"chat_id": new_id(), "run_id": run_id}):
        with pytest.raises(NotFound):
            await memory.chat(**fields)
    with pytest.raises(InvalidRequest, match="chatId"):
        await memory.chat()


async def test_references_of_all_queries_are_returned_once(memory: Memory) -> None:
    first = common_pb2.Reference(id="1", name="a", size_bytes=2**53 + 1, meta='{"n": 12345678901234567890123}')
    second = common_pb2.Reference(id="2", name="b")
    chat_id, _ = await memory.begin("x", references=[first, second])
    await memory.begin("y", chat_id, references=[common_pb2.Reference(id="2", name="other"), second])
    assert list((await memory.chat(chat_id=chat_id)).references) == [first, second]


async def test_raw_messages_are_returned_as_stored_and_only_on_request(memory: Memory) -> None:
    chat_id, run_id = await memory.begin_with(step_line(content("水\n", content_id="c_1")), run_line(), message="one")
    _, run_id = await memory.begin_with(step_line(user("a"), call("t1", "{cut")), message="two", chat_id=chat_id)
    assert not (await memory.chat(chat_id=chat_id)).HasField("raw_messages")
    raw = orjson.loads((await memory.chat(chat_id=chat_id, include_raw_messages=True)).raw_messages)
    assert [message["role"] for message in raw] == ["user", "assistant", "user", "user", "assistant"]
    assert raw[0]["content"] == [{"type": "text", "text": "one"}]
    assert raw[1] == {
        "role": "assistant", "content": [{"type": "text", "text": "水\n"}], "ts": 1_700_000_000_000,
        "_contentId": "c_1", "_msgId": "m_00000001", "_tokens": {"encoding": "o200k_base", "count": 7},
    }  # fmt: skip
    assert raw[4]["_rawArguments"] == "{cut"
    one_run = orjson.loads((await memory.chat(run_id=run_id, include_raw_messages=True)).raw_messages)
    assert one_run == raw[2:]


async def test_without_events_the_name_and_the_last_agent_are_returned(memory: Memory) -> None:
    chat_id, _ = await memory.begin("one")
    await memory.begin("two", chat_id, agent_key="planner")
    chat = await memory.chat(chat_id=chat_id, without_events=True)
    assert (chat.chat_name, chat.last_agent_key, len(chat.events)) == ("one", "planner", 0)
    with pytest.raises(NotFound):
        await memory.chat(chat_id=new_id(), without_events=True)


async def test_the_run_of_a_request_is_found_whether_or_not_it_has_ended(memory: Memory) -> None:
    chat_id, first = await memory.begin_with(run_line(), message="one", request_id="r1")
    _, second = await memory.begin("two", chat_id, request_id="r2")
    for request_id, run_id in (("r1", first), ("r2", second), ("r3", ""), ("", "")):
        chat = await memory.chat(chat_id=chat_id, request_id=request_id, without_events=True)
        assert (chat.request_run_id, chat.HasField("request_run_id")) == (run_id, bool(run_id))


async def read_pages(memory: Memory, **fields: Any) -> list[Any]:
    """Return the pages of a chat, newest first."""
    pages, token = list[Any](), ""
    while token or not pages:
        pages.append(await memory.chat(**fields, page_token=token))
        token = pages[-1].earlier_page_token
    return pages


async def test_a_long_chat_is_returned_in_pages_of_less_than_4_mib(memory: Memory) -> None:
    chat_id, first = await memory.begin("first", references=[common_pb2.Reference(id="a", name="a.txt")])
    for seq_offset in range(40):
        text = content("x" * 250_000, content_id=f"c_{seq_offset}", events=events(4 + seq_offset))
        await memory.append(chat_id, first, step_line(text))
    await memory.append(chat_id, first, run_line("completed", 50))
    _, second = await memory.begin("second", chat_id, references=[common_pb2.Reference(id="b", name="b.txt")])
    await memory.append(chat_id, second, run_line("completed", 4))

    pages = await read_pages(memory, chat_id=chat_id)
    assert len(pages) > 3
    assert all(page.ByteSize() < 4 * 1024 * 1024 for page in pages)
    events_ = [event for page in reversed(pages) for event in page.events]
    assert [event.seq for event in events_] == [1, 2, 3, *range(4, 44), 50, 1, 2, 4]
    assert [[reference.id for reference in page.references] for page in pages] == [
        ["b"], *[[]] * (len(pages) - 2), ["a"]
    ]  # fmt: skip
    assert [page.chat_name for page in pages] == ["first"] * len(pages)
    raw = [
        orjson.loads(page.raw_messages) for page in await read_pages(memory, chat_id=chat_id, include_raw_messages=True)
    ]
    assert [len(messages) for messages in raw] == [1, *[0] * (len(pages) - 2), 41]
    of_first = await read_pages(memory, run_id=first)
    assert [event.seq for page in reversed(of_first) for event in page.events] == [1, 2, 3, *range(4, 44), 50]


@pytest.mark.parametrize("token", ["x", ":1", "11111111-1111-4111-8111-111111111111:2"])
async def test_the_page_token_of_another_chat_is_rejected(memory: Memory, token: str) -> None:
    chat_id, _ = await memory.begin()
    with pytest.raises(InvalidRequest, match="pageToken"):
        await memory.chat(chat_id=chat_id, page_token=token)
