"""Append over a real socket to real files: line numbers, repetition, fencing, and the stored form of each line."""

import asyncio
import re
import zlib
from pathlib import Path
from typing import Any

import orjson
import pytest

from headrace.errors import InvalidRequest, NotFound, StaleLease
from headrace.v1 import agent_pb2, common_pb2, llm_pb2, memory_pb2
from services.memory.log.lines import COUNT_MAX
from tests.support.memory.engines import Files, Kept, Serve, open_engine
from tests.support.memory.held_sync import HeldSync
from tests.support.memory.messages import call, content, reasoning, result, user
from tests.support.memory.serving import memory_over
from tests.support.memory.writing import USAGE, Memory, event_line, events, new_id, query_line, run_line, step_line

pytestmark = pytest.mark.engines

BIG = "123456789012345678901234567890.10"


async def read_lines(kept: Kept, chat_id: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (await kept.log(chat_id)).splitlines()]


async def test_lines_get_consecutive_numbers_and_the_append_its_uuid(memory: Memory, kept: Kept) -> None:
    chat_id, run_id = await memory.begin("  what\n is the\tweather like?  ")
    request_id = new_id()
    reply = await memory.append(
        chat_id, run_id, step_line(content("a")), step_line(content("b")), request_id=request_id
    )
    assert reply == memory_pb2.AppendResponse(
        first_n=2, last_n=3, chat_name="what is the weather like?", checkpoint_id=1, chat_owner="default"
    )
    lines = await read_lines(kept, chat_id)
    assert [line["_n"] for line in lines] == [1, 2, 3]
    assert lines[1]["uuid"] == request_id
    assert len({line["uuid"] for line in lines}) == 3


async def test_the_first_query_creates_the_chat(memory: Memory) -> None:
    chat_id = new_id()
    first = await memory.append(chat_id, new_id(), query_line("水车 turns"))
    assert (first.chat_created, first.chat_name, first.first_n) == (True, "水车 turns", 1)
    second = await memory.append(chat_id, new_id(), query_line("something else"))
    assert (second.chat_created, second.chat_name, second.first_n) == (False, "水车 turns", 2)


async def test_a_blank_first_message_gives_the_chat_its_default_name(memory: Memory) -> None:
    reply = await memory.append(new_id(), new_id(), query_line(" \n "))
    assert reply.chat_name == "New chat"


@pytest.mark.engines("postgres")
@pytest.mark.parametrize("restart", [False, True])
async def test_a_repeated_append_gets_the_same_reply_and_adds_nothing(serve: Serve, kept: Kept, restart: bool) -> None:
    chat_id, run_id, request_id = new_id(), new_id(), new_id()
    lines = [query_line(), step_line(content("a")), run_line()]
    async with serve() as memory:
        first = await memory.append(chat_id, run_id, *lines, request_id=request_id)
        if not restart:
            assert await memory.append(chat_id, run_id, *lines, request_id=request_id) == first
    if restart:
        async with serve() as memory:
            assert await memory.append(chat_id, run_id, *lines, request_id=request_id) == first
    assert first == memory_pb2.AppendResponse(
        first_n=1, last_n=3, chat_created=True, chat_name="hello", chat_owner="default"
    )
    assert len(await read_lines(kept, chat_id)) == 3


async def test_a_query_with_a_known_request_id_returns_the_first_run(memory: Memory, kept: Kept) -> None:
    chat_id, run_id = await memory.begin(request_id="mine")
    reply = await memory.append(chat_id, new_id(), query_line("again", request_id="mine"))
    assert reply == memory_pb2.AppendResponse(chat_name="hello", duplicate_run_id=run_id)
    assert len(await read_lines(kept, chat_id)) == 1
    other_chat = await memory.append(new_id(), new_id(), query_line(request_id="mine"))
    assert not other_chat.HasField("duplicate_run_id")


async def test_queries_repeated_at_the_same_moment_start_one_run(memory: Memory) -> None:
    chat_id = new_id()
    async with asyncio.timeout(100):
        replies = await asyncio.gather(
            *(memory.append(chat_id, new_id(), query_line(request_id="mine")) for _ in range(20))
        )
    assert len([reply for reply in replies if reply.first_n]) == 1
    assert len({reply.duplicate_run_id for reply in replies if reply.duplicate_run_id}) == 1


async def test_a_chat_or_run_without_a_query_is_not_found(memory: Memory) -> None:
    with pytest.raises(NotFound):
        await memory.append(new_id(), new_id(), step_line(content("a")))
    chat_id, run_id = await memory.begin()
    with pytest.raises(NotFound, match="no query line"):
        await memory.append(chat_id, new_id(), step_line(content("a")))
    other_chat, _ = await memory.begin()
    with pytest.raises(NotFound, match="no query line"):
        await memory.append(other_chat, run_id, step_line(content("a")))


async def test_an_append_with_an_older_generation_is_stale(memory: Memory) -> None:
    chat_id, run_id = await memory.begin()
    await memory.append(chat_id, run_id, step_line(content("a")), generation=2)
    with pytest.raises(StaleLease, match="generation 2; 1 is stale"):
        await memory.append(chat_id, run_id, step_line(content("b")), generation=1)
    await memory.append(chat_id, run_id, step_line(content("c")), generation=2)


async def test_an_ended_run_accepts_no_more_lines(memory: Memory) -> None:
    chat_id, run_id = await memory.begin_with(run_line())
    with pytest.raises(StaleLease, match="has ended"):
        await memory.append(chat_id, run_id, step_line(content("late")), generation=7)


def _raw(**fields: Any) -> memory_pb2.LogMessage:
    return memory_pb2.LogMessage(message=llm_pb2.Message(**fields))


@pytest.mark.parametrize(
    ("lines", "field"),
    [
        ([memory_pb2.LogLine()], "lines[0]"),
        ([step_line(user("a")), query_line()], "lines[1].query"),
        ([run_line(), step_line(user("a"))], "lines[0].run"),
        ([query_line()], "lines[0].query"),
        ([memory_pb2.LogLine(run=memory_pb2.RunLine(state="failed"))], "lines[0].run.events"),
        ([memory_pb2.LogLine(event=memory_pb2.EventLine())], "lines[0].event.event"),
        ([step_line(user("a"), _raw(role="assistant"))], "lines[0].step.messages[1]"),
        ([step_line(_raw(role="assistant", tool_calls=[llm_pb2.ToolCall()] * 2))], "lines[0].step.messages[0]"),
        ([step_line(_raw(role="user"))], "lines[0].step.messages[0]"),
        ([step_line(_raw(role="system"))], "lines[0].step.messages[0].role"),
        (
            [step_line(_raw(role="tool", content=[llm_pb2.ContentPart(text="a")]))],
            "lines[0].step.messages[0].toolCallId",
        ),
    ],
)
async def test_malformed_lines_are_rejected_naming_the_field(
    memory: Memory, lines: list[memory_pb2.LogLine], field: str
) -> None:
    chat_id, run_id = await memory.begin()
    with pytest.raises(InvalidRequest) as caught:
        await memory.append(chat_id, run_id, *lines)
    assert caught.value.metadata["field"] == field


async def test_a_query_line_is_stored_in_the_documented_format(memory: Memory, kept: Kept) -> None:
    reference = common_pb2.Reference(id="f1", type="file", name="a.txt", meta='{"n": ' + BIG + "}")
    chat_id, run_id = await memory.begin(
        "a\n\u2028b",
        request_id="r1",
        references=[reference],
        params='{\r\n "big": ' + BIG + "}",
        scene=agent_pb2.Scene(url="https://example.org"),
        stream=False,
        deep_think=0,
        on_disconnect="cancel",
        when_busy="enqueue",
    )
    (text,) = (await kept.log(chat_id)).splitlines()
    line = orjson.loads(text)
    assert line.pop("updatedAt") > 1_700_000_000_000
    assert line.pop("uuid")
    assert list(line)[-1] == "_crc"
    assert zlib.crc32(text[: text.rindex(b',"_crc"')] + b"}") == int(line.pop("_crc"), 16)
    query = line.pop("query")
    assert line == {
        "_type": "query", "_n": 1, "chatId": chat_id, "runId": run_id,
        "_tenant": "default", "_user": "default", "_gen": 0,
        "_agentHash": "abc", "_tokens": {"encoding": "o200k_base", "count": 9},
    }  # fmt: skip
    assert text.count(BIG.encode()) == 2
    assert b'"params":{   "big": ' in text
    assert query.pop("params").keys() == {"big"}
    assert query == {
        "requestId": "r1", "agentKey": "writer", "role": "user", "message": "a\n\u2028b",
        "references": [{"id": "f1", "type": "file", "name": "a.txt", "meta": {"n": float(BIG)}}],
        "scene": {"url": "https://example.org"}, "stream": False, "deepThink": 0,
        "onDisconnect": "cancel", "whenBusy": "enqueue",
    }  # fmt: skip


async def test_a_step_line_is_stored_in_the_documented_format(memory: Memory, kept: Kept) -> None:
    chat_id, run_id = await memory.begin()
    thought = reasoning(
        "hm\n\n", reasoning_id="r_1", events=events(5), timing=memory_pb2.Timing(started_at=1, ended_at=2)
    )
    thought.message.provider_state = '{"signature": "x"}'
    await memory.append(
        chat_id,
        run_id,
        step_line(
            thought,
            content("  Well", content_id="c_1", events=events(7)),
            call("t1", '{"a": ' + BIG + "}", events=events(9), tool_params='{"a": ' + BIG + "}", usage=USAGE),
            call("t2", '{"cut', events=events(11)),
            result("t1", "", events=events(12), ok=False),
            system="You are",
            task_id="12345678",
            context_id="task-12345678",
            plan=memory_pb2.Plan(
                plan_id="p", tasks=[agent_pb2.Task(task_id="12345678", description="d", status="init")]
            ),
            events=memory_pb2.EventRange(first_seq=4, last_seq=12),
        ),
        generation=3,
    )
    line = (await read_lines(kept, chat_id))[1]
    ts, msg = 1_700_000_000_000, "m_00000001"
    usage = {"inputTokens": 10, "outputTokens": 4, "modelCalls": 1, "toolCalls": 1}
    assert (line["_type"], line["_stage"], line["_seq"], line["_gen"]) == ("step", "react", 1, 3)
    assert (line["system"], line["taskId"], line["contextId"]) == ("You are", "12345678", "task-12345678")
    assert line["plan"] == {"planId": "p", "tasks": [{"taskId": "12345678", "description": "d", "status": "init"}]}
    assert line["_events"] == {"from": 4, "to": 12}
    assert all(message.pop("_tokens")["count"] > 4 for message in line["messages"])
    assert line["messages"] == [
        {"role": "assistant", "reasoning_content": [{"type": "text", "text": "hm\n\n"}], "ts": ts,
         "_reasoningId": "r_1", "_msgId": msg, "_timing": {"startedAt": 1, "endedAt": 2},
         "_providerState": {"signature": "x"}, "_events": {"from": 5, "to": 5}},
        {"role": "assistant", "content": [{"type": "text", "text": "  Well"}], "ts": ts, "_contentId": "c_1",
         "_msgId": msg, "_events": {"from": 7, "to": 7}},
        {"role": "assistant", "ts": ts, "_msgId": msg, "_toolId": "t1", "_toolParams": {"a": float(BIG)},
         "_usage": usage,
         "tool_calls": [{"type": "function", "id": "t1",
                         "function": {"name": "weather", "arguments": '{"a": ' + BIG + "}"}}],
         "_events": {"from": 9, "to": 9}},
        {"role": "assistant", "ts": ts, "_msgId": msg, "_toolId": "t2", "_rawArguments": '{"cut',
         "tool_calls": [{"type": "function", "id": "t2", "function": {"name": "weather", "arguments": "{}"}}],
         "_events": {"from": 11, "to": 11}},
        {"role": "tool", "content": [{"type": "text", "text": ""}], "name": "weather", "tool_call_id": "t1", "ts": ts,
         "_toolId": "t1", "_ok": False, "_events": {"from": 12, "to": 12}},
    ]  # fmt: skip


async def test_event_and_run_lines_are_stored_as_they_are_sent(memory: Memory, kept: Kept) -> None:
    chat_id, run_id = await memory.begin()
    submit = agent_pb2.RequestSubmit(
        request_id="q", chat_id=chat_id, run_id=run_id, tool_id="t", payload='{"n":' + BIG + "}"
    )
    error = common_pb2.Failure(code="OVERLOADED", message="busy", retriable=True, details='{"n": 1}')
    await memory.append(
        chat_id,
        run_id,
        event_line(seq=4, timestamp=5, request_submit=submit, task_id="12345678"),
        run_line("failed", 6, error=error),
    )
    event, run = (await read_lines(kept, chat_id))[1:]
    assert event["event"] == {
        "seq": 4, "type": "request.submit", "requestId": "q", "chatId": chat_id, "runId": run_id, "toolId": "t",
        "payload": {"n": float(BIG)}, "taskId": "12345678", "timestamp": 5,
    }  # fmt: skip
    assert (run["state"], run["_events"]) == ("failed", {"from": 6, "to": 6})
    assert run["error"] == {"code": "OVERLOADED", "message": "busy", "retriable": True, "details": {"n": 1}}
    assert run["usage"]["inputTokens"] == 10
    assert (event["_lines"], run.get("_lines")) == (2, None)


async def test_calls_of_configured_tools_are_stored_and_returned_as_actions(serve: Serve, kept: Kept) -> None:
    async with serve(chat_action_tools="theme, fireworks") as memory:
        chat_id, run_id = await memory.begin()
        call_and_result = call("a1", name="theme", events=events(6)), result("a1", "OK", name="theme", events=events(7))
        await memory.append(chat_id, run_id, step_line(*call_and_result, call("t1", events=events(8))))
        found = (await memory.chat(chat_id=chat_id)).events
    assert found[3].action_snapshot == agent_pb2.ActionSnapshot(
        action_id="a1", run_id=run_id, action_name="theme", arguments="{}"
    )
    assert found[4].action_param == agent_pb2.ActionParam(action_id="a1", param="{}")
    assert found[5].action_result == agent_pb2.ActionResult(action_id="a1", result="OK")
    ids = [(line.get("_toolId"), line.get("_actionId")) for line in (await read_lines(kept, chat_id))[1]["messages"]]
    assert ids == [(None, "a1"), (None, "a1"), ("t1", None)]


async def test_concurrent_appends_to_many_chats_leave_no_gap(memory: Memory, kept: Kept) -> None:
    chats = [await memory.begin(f"chat {index}") for index in range(8)]
    async with asyncio.timeout(200):
        replies = await asyncio.gather(
            *(
                memory.append(*chat, step_line(content("x")), step_line(content("y")))
                for chat in chats
                for _ in range(20)
            )
        )
    assert sorted(reply.first_n for reply in replies) == sorted(list(range(2, 42, 2)) * 8)
    for chat_id, _ in chats:
        assert [line["_n"] for line in await read_lines(kept, chat_id)] == list(range(1, 42))


async def test_lines_are_stored_even_if_the_caller_leaves(folder: Path) -> None:
    sync = HeldSync()
    async with asyncio.timeout(200), memory_over(folder, sync=sync) as memory:
        chat_id, run_id = await memory.begin("hello")
        sync.hold()
        leaving = asyncio.create_task(memory.append(chat_id, run_id, step_line(content("kept"))))
        await asyncio.to_thread(sync.reached.wait, 10)
        leaving.cancel()
        await asyncio.wait([leaving])
        assert len(await memory.context(chat_id, run_id)) == 1, "what is not on disk yet is in no view"
        sync.go_on.set()
        assert (await memory.append(chat_id, run_id, step_line(user("b")))).first_n == 3
        assert len(await memory.context(chat_id, run_id)) == 3


async def test_a_deletion_is_completed_even_if_the_caller_leaves(folder: Path) -> None:
    async with memory_over(folder) as memory:
        chats = [(await memory.begin_and_end())[0] for _ in range(12)]
        for chat_id in chats:
            await memory.put_blob(chat_id, b"picture")
    async with open_engine(Files(folder)) as engine:
        for turns, chat_id in enumerate(chats, 1):
            leaving = asyncio.create_task(engine.chats.delete(chat_id))
            for _ in range(turns):
                await asyncio.sleep(0)
            leaving.cancel()
            await asyncio.wait([leaving])
            assert not (folder / f"{chat_id}.json").exists(), turns
            assert not (folder / "blobs" / chat_id).exists()
            with pytest.raises(NotFound):
                await engine.chats.load(chat_id)


async def test_numbers_too_large_for_the_index_are_rejected(memory: Memory) -> None:
    chat_id, run_id = await memory.begin()
    for line, name in (
        (event_line(seq=2**63, run_notice=agent_pb2.RunNotice(code="late")), "event.event.seq"),
        (step_line(content("a", events=events(2**64 - 1))), "step.messages[0].events"),
        (step_line(content("a"), events=events(2**63)), "step.events"),
        (run_line(seq=2**63), "run.events"),
    ):
        with pytest.raises(InvalidRequest, match=re.escape(f"lines[0].{name}")):
            await memory.append(chat_id, run_id, line)
    await memory.append(chat_id, run_id, run_line(seq=2**63 - 1))
    assert [chat.chat_id for chat in (await memory.chats()).chats] == [chat_id]


async def test_absurd_charges_are_capped(memory: Memory) -> None:
    """A wrong report of a model's server must not lock users out of their chats."""
    chat_id, run_id = await memory.begin()
    huge = memory_pb2.Charge(
        agent_key="writer", input_tokens=2**63 - 1, output_tokens=-5, model_calls=1, cost_nano_usd=2**63 - 1
    )
    for _ in range(2):
        step = step_line(content("a"))
        step.charges.append(huge)
        await memory.append(chat_id, run_id, step)
    assert [chat.chat_id for chat in (await memory.chats()).chats] == [chat_id]
    total = (await memory.usage()).total
    assert (total.input_tokens, total.output_tokens, total.cost_nano_usd) == (2 * COUNT_MAX, 0, 2 * COUNT_MAX)
