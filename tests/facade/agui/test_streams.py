"""AG-UI streams over real sockets with a scripted orchestrator: ends, errors, disconnects, cursors."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ChatBusy, InvalidRequest, Overloaded, ProviderUnavailable
from headrace.sse import SseFrame
from headrace.v1 import agent_pb2, common_pb2
from tests.support.facade.agui import fold, kinds
from tests.support.facade.fronts import Timing
from tests.support.facade.openai_api import (
    answer_from,
    block,
    client_call,
    make_run,
    past_call,
    reset,
    result,
    thinking,
    thought,
)
from tests.support.facade.scripted import (
    BLOCK,
    CHAT,
    RUN,
    Script,
    Step,
    Suite,
    answering,
    delta,
    opening,
    read_all_frames,
    suite,
    text,
)
from tests.support.timing import within

URL = "/agui/helper"
PUBLISH = ["ag-ui"]
TOOLS = [{"name": "thermometer", "description": "Reads."}]


def ask(**fields: Any) -> dict[str, Any]:
    return {"threadId": CHAT, "runId": "r-1", "messages": [{"id": "u", "role": "user", "content": "hi"}]} | fields


def make_content(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"id": "u", "role": "user", "content": [*parts]}]}


def media(kind: str, value: str, name: str = "image", **fields: Any) -> dict[str, Any]:
    return {"type": name, "source": {"type": kind, "value": value, "mimeType": f"{name}/png"}} | fields


async def read_frames(facade: Suite, body: Any, cursor: str = "") -> list[SseFrame]:
    headers = {"Last-Event-ID": cursor} if cursor else {}
    async with within(50), facade.http.post(URL, json=body, headers=headers) as response:
        assert response.status == 200, await response.text()
        return await read_all_frames(response)


async def read_events(facade: Suite, body: Any, cursor: str = "") -> list[dict[str, Any]]:
    return [json.loads(frame.data) for frame in await read_frames(facade, body, cursor)]


async def test_a_run_starts_and_finishes_under_the_clients_run_id(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=answering("20", " °C"), publish=PUBLISH)) as facade:
        context = [{"description": "Unit", "value": "Celsius"}]
        events = await read_events(facade, ask(context=context, forwardedProps={"account": 10**30}))
        query = next(message for message in facade.script.requests if isinstance(message, agent_pb2.QueryRequest))
    assert (query.chat_id, query.request_id, query.agent_key, query.message) == (CHAT, "r-1", "helper", "hi")
    assert [(message.role, message.content) for message in query.history] == [("system", "Unit: Celsius")]
    assert json.loads(query.params) == {"account": 10**30}
    assert kinds(events) == [
        *("RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT"),
        *("TEXT_MESSAGE_END", "RUN_FINISHED"),
    ]
    assert (events[0]["runId"], events[0]["metadata"]) == ("r-1", {"headrace": {"runId": RUN}})
    assert (events[-1]["outcome"], events[-1]["usage"][0]["totalTokens"]) == ({"type": "success"}, 17)


async def test_an_unpublished_agent_is_not_found(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=answering("x"))) as facade:
        async with facade.http.post(URL, json=ask()) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (404, "NOT_FOUND")
        async with facade.http.get("/agui") as response:
            assert await response.json() == {}
        assert not [request for request in facade.script.requests if isinstance(request, agent_pb2.QueryRequest)]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"threadId": ""}, "threadId"),
        ({"runId": ""}, "runId"),
        ({"messages": [{"id": "u", "role": "assistant", "content": "hi"}]}, "messages"),
        (make_content({"type": "image"}), "messages[0].content[0].source"),
        (make_content({"type": "image", "source": "x"}), "messages[0].content"),
        (make_content({"type": "link"}), "messages[0].content[0]"),
        (make_content(media("url", "https://example.org/a.png")), "messages[0].content[0].source"),
        (make_content(media("file", "file-1")), "messages[0].content[0].source"),
        (make_content(media("data", "%%")), "messages[0].content[0].source.value"),
        (make_content(media("data", "AAAA")), "messages[0].content[0]"),
        ({"messages": 1}, "messages"),
        ({"resume": [{"interruptId": "x", "status": "resolved"}]}, "resume[0].interruptId"),
        ({"tools": [{"name": ""}]}, "tools[0]"),
        ({"forwardedProps": {"headrace": 1}}, "forwardedProps.headrace"),
    ],
)
async def test_a_bad_request_names_the_field(tmp_path: Path, fields: dict[str, Any], field: str) -> None:
    async with (
        suite(tmp_path, Script(query=answering("x"), publish=PUBLISH)) as facade,
        facade.http.post(URL, json=ask(**fields)) as response,
    ):
        assert response.status == 400
        assert (await response.json())["error"]["details"]["field"] == field


async def test_an_error_before_the_first_event_is_an_http_status(tmp_path: Path) -> None:
    script = Script(query=[ChatBusy("the chat has a run", runId=RUN)], publish=PUBLISH)
    async with suite(tmp_path, script) as facade, facade.http.post(URL, json=ask()) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (409, "CHAT_BUSY")


async def test_an_error_after_the_headers_or_later_is_a_run_error_without_a_cursor(tmp_path: Path) -> None:
    slow: list[Step] = [0.3, ChatBusy("the chat has a run")]
    for steps in (slow, [*answering("x")[:5], ProviderUnavailable("the service went away")]):
        async with suite(tmp_path, Script(query=steps, publish=PUBLISH), timing=Timing(heartbeat_s=0.05)) as facade:
            frames = await read_frames(facade, ask())
        last = json.loads(frames[-1].data)
        assert (last["type"], last["code"]) == ("RUN_ERROR", steps[-1].reason)  # pyright: ignore[reportAttributeAccessIssue]
        assert not frames[-1].id


async def test_a_failed_or_cancelled_run_ends_with_its_outcome(tmp_path: Path) -> None:
    failed = agent_pb2.RunError(run_id=RUN, error=common_pb2.Failure(code="RATE_LIMITED", message="slow down"))
    async with suite(tmp_path, Script(publish=PUBLISH)) as facade:
        facade.script.query = [*opening(), delta(4, run_error=failed)]
        assert (await read_events(facade, ask()))[-1] | {"usage": 0} == {
            **{"type": "RUN_ERROR", "message": "slow down", "code": "RATE_LIMITED", "usage": 0}
        }
        facade.script.query = [*answering("x")[:5], delta(6, run_cancel=agent_pb2.RunCancel(run_id=RUN))]
        events = await read_events(facade, ask())
        assert kinds(events)[-2:] == ["TEXT_MESSAGE_END", "RUN_FINISHED"]
        assert events[-1]["outcome"] == {"type": "cancelled"}


async def test_a_reader_can_resume_after_any_event(tmp_path: Path) -> None:
    """A reader that resumes at any cursor ends up with the same blocks as one that reads without a break."""
    async with suite(tmp_path, Script(query=thinking(), publish=PUBLISH)) as facade:
        whole = await read_frames(facade, ask())
        # When a run is read again, an ended block arrives as a snapshot and a live block as one delta.
        as_snapshots: list[Step] = [
            delta(6, reasoning_snapshot=agent_pb2.ReasoningSnapshot(reasoning_id=f"{RUN}_r_1", text="Hm")),
            delta(10, content_snapshot=agent_pb2.ContentSnapshot(content_id=BLOCK, text="I look.")),
        ]
        live: list[Step] = [*thinking()[3:7], text(9, "I look."), thinking()[9]]
        for repeated in (as_snapshots, live):
            facade.script.query = [*opening(), *repeated, *thinking()[10:]]
            for at, frame in enumerate(whole[:-1]):
                if frame.id:
                    later_frames = await read_frames(facade, ask(), frame.id)
                    events = [json.loads(read_frame.data) for read_frame in [*whole[: at + 1], *later_frames]]
                    assert fold(events) == fold([json.loads(read_frame.data) for read_frame in whole]), frame.id


async def test_text_of_a_reset_attempt_is_replaced(tmp_path: Path) -> None:
    steps = [*opening(), *thought(4), *block(7, BLOCK, "I lo")[:-1], reset(9, 6)]
    script = Script(query=[*steps, *block(10, f"{RUN}_c_2", "I look."), answering()[-1]], publish=PUBLISH)
    async with suite(tmp_path, script) as facade:
        assert list(fold(await read_events(facade, ask())).values()) == ["Hm", "I look."]


@pytest.mark.parametrize("says_all", [True, False], ids=["with its messages", "with the result alone"])
async def test_an_answered_frontend_call_is_not_sent_again(tmp_path: Path, says_all: bool) -> None:
    """A call that has its result arrives as a snapshot with the seq of its end."""
    waiting: list[Step] = [*opening(), *client_call(4, "t_0000000a"), asyncio.Event()]
    script = Script(query=waiting, publish=PUBLISH, run=make_run("waiting"))
    async with suite(tmp_path, script) as facade:
        (*_, end) = await read_events(facade, ask(tools=TOOLS))
        (call_id,) = end["outcome"]["pendingToolCallIds"]
        script.attaches = [[*opening(), past_call(6, "t_0000000a"), result(7, "t_0000000a"), *answer_from(8, "20 °C")]]
        call = {"id": call_id, "type": "function", "function": {"name": "thermometer", "arguments": '{"room":1}'}}
        assistant_messages = [{"id": "a", "role": "assistant", "toolCalls": [call]}] if says_all else []
        answer = {"id": "t", "role": "tool", "toolCallId": call_id, "content": "20"}
        events = await read_events(facade, ask(runId="r-2", messages=[*ask()["messages"], *assistant_messages, answer]))
        submitted = next(request for request in script.requests if isinstance(request, agent_pb2.SubmitRequest))
    assert (submitted.run_id, submitted.tool_id, submitted.payload) == (RUN, "t_0000000a", "20")
    assert (events[0]["runId"], events[-1]["type"]) == ("r-2", "RUN_FINISHED")
    assert kinds(events)[:2] == ["RUN_STARTED", "TEXT_MESSAGE_START"]
    assert "TOOL_CALL_START" not in kinds(events)
    assert list(fold(events).values()) == ["20 °C"]


async def test_one_request_answers_an_approval_and_a_function_call(tmp_path: Path) -> None:
    approval = delta(7, gate_open=agent_pb2.GateOpen(gate_id="approval_x", kind="approval", tool_id="t_0000000b"))
    waiting: list[Step] = [*opening(), *client_call(4, "t_0000000a"), approval, asyncio.Event()]
    script = Script(query=waiting, publish=PUBLISH, run=make_run("waiting"))
    async with suite(tmp_path, script) as facade:
        first_events = await read_events(facade, ask(tools=TOOLS))
        (interrupt,) = first_events[-1]["outcome"]["interrupts"]
        call_id = next(event["toolCallId"] for event in first_events if event["type"] == "TOOL_CALL_START")
        script.attaches = [[*waiting[:-1], result(8, "t_0000000a"), *answer_from(9, "20 °C")]]
        calls = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}}
            for id, name in ((call_id, "thermometer"), ("t_0000000b", "pay"))
        ]
        assistant_messages = [
            {"id": "a", "role": "assistant", "toolCalls": calls},
            {"id": "t", "role": "tool", "toolCallId": call_id, "content": "20 °C"},
        ]
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"decision": "approve"}}]
        messages = [*ask()["messages"], *assistant_messages]
        events = await read_events(facade, ask(runId="r-2", messages=messages, resume=resume))
        submits = [request for request in script.requests if isinstance(request, agent_pb2.SubmitRequest)]
    assert [(request.approval_id, request.tool_id, json.loads(request.payload)) for request in submits] == [
        ("approval_x", "", {"decision": "approve"}),
        ("", "t_0000000a", "20 °C"),
    ]
    assert list(fold(events).values()) == ["20 °C"]


async def test_a_reader_resuming_in_the_middle_of_a_call_gets_it_once(tmp_path: Path) -> None:
    steps = [*opening(), *client_call(4, "t_0000000a"), asyncio.Event()]
    script = Script(query=steps, publish=PUBLISH)
    async with suite(tmp_path, script) as facade:
        whole = await read_frames(facade, ask(tools=TOOLS))
        start_index = next(at for at, frame in enumerate(whole) if b"TOOL_CALL_START" in frame.data)
        script.query = [*opening(), past_call(6, "t_0000000a"), asyncio.Event()]
        later_frames = await read_frames(facade, ask(), whole[start_index].id or "")
    events = [json.loads(frame.data) for frame in [*whole[: start_index + 1], *later_frames]]
    assert list(fold(events).values()) == ['{"room":1}']
    assert events[-1]["outcome"]["pendingToolCallIds"] == list(fold(events))


async def test_a_resumed_stream_starts_with_run_started_and_the_state(tmp_path: Path) -> None:
    todo_call: dict[str, Any] = {"tool_type": "orchestrator", "tool_name": "write_todos", "tool_params": "{}"}
    past = delta(4, tool_snapshot=agent_pb2.ToolSnapshot(tool_id="x", **todo_call))
    written = delta(5, tool_result=agent_pb2.ToolResult(tool_id="x", result="ok", ok=True))
    waiting: list[Step] = [*opening(), past, written, *client_call(6, "t_0000000a"), asyncio.Event()]
    script = Script(query=waiting, publish=PUBLISH, run=make_run("waiting"))
    async with suite(tmp_path, script) as facade:
        facade.memory.state = '{"todos": []}'
        (*_, end) = await read_events(facade, ask(tools=TOOLS))
        (call_id,) = end["outcome"]["pendingToolCallIds"]
        script.attaches = [[*waiting[:-1], result(9, "t_0000000a"), *answer_from(10, "20 °C")]]
        answer = {"id": "t", "role": "tool", "toolCallId": call_id, "content": "20"}
        events = await read_events(facade, ask(runId="r-2", messages=[*ask()["messages"], answer]))
    assert kinds(events)[:2] == ["RUN_STARTED", "STATE_SNAPSHOT"]


async def test_a_resuming_reader_receives_the_state_after_its_cursor(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=thinking(), publish=PUBLISH)) as facade:
        facade.memory.state = '{"todos": []}'
        whole = await read_frames(facade, ask())
        cursor = [frame.id for frame in whole if frame.id][-3] or ""
        later_frames = await read_frames(facade, ask(), cursor)
    assert "STATE_SNAPSHOT" in kinds([json.loads(frame.data) for frame in later_frames])
    seqs = [int(id.partition(";")[0]) for id in [cursor, *(frame.id for frame in later_frames if frame.id)]]
    assert seqs == sorted(seqs)


async def test_an_unavailable_memory_is_not_asked_for_the_state_at_each_event(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=answering(*"a long answer"), publish=PUBLISH)) as facade:
        facade.memory.state_error = Overloaded("a fail-over")
        events = await read_events(facade, ask())
        assert facade.memory.state_reads < 3
    assert list(fold(events).values()) == ["a long answer"]


async def test_a_disconnecting_reader_ends_the_rpc(tmp_path: Path) -> None:
    steps: list[Step] = [*opening(), text(4, "x"), asyncio.Event()]
    async with suite(tmp_path, Script(query=steps, publish=PUBLISH)) as facade:
        async with within(5), facade.http.post(URL, json=ask()) as response:
            await response.content.readline()
        async with within(5):
            await facade.script.closed.wait()


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1Pe"


async def test_media_of_a_message_become_references_of_its_query(tmp_path: Path) -> None:
    table = media("data", "YSxi", "document", metadata={"filename": "a.csv"})
    body = ask(**make_content({"type": "text", "text": "Compare"}, media("data", PNG), table))
    async with suite(tmp_path, Script(query=answering("alike"), publish=PUBLISH)) as facade:
        assert kinds(await read_events(facade, body))[-1] == "RUN_FINISHED"
        query = next(request for request in facade.script.requests if isinstance(request, agent_pb2.QueryRequest))
        (picture, _), uploaded = facade.tools.uploaded
        assert (picture.chat_id, uploaded[0].name, uploaded[1]) == (CHAT, "a.csv", b"a,b")
        assert [reference.name for reference in query.references] == [picture.name, "a.csv"]
        assert query.message == f"Compare\n[{picture.name}]\n\n[a.csv]"
        facade.tools.refused = InvalidRequest.of("file", "is larger than 10 MiB")
        async with facade.http.post(URL, json=body) as response:
            assert response.status == 400
            assert (await response.json())["error"]["details"]["field"] == "messages[0].content[1]"


@pytest.mark.parametrize(
    ("parts", "names"),
    [
        ([{"type": "binary", "mimeType": "text/csv", "data": "YSxi", "filename": "a.csv"}], ["a.csv"]),
        ([{"type": "binary", "mimeType": "image/png", "url": f"data:image/png;base64,{PNG}"}], ["image-9eaf66cb.png"]),
        ([media("url", f"data:image/png;base64,{PNG}")], ["image-9eaf66cb.png"]),
        ([media("data", PNG), {"type": "binary", "mimeType": "image/png", "data": PNG}], ["image-9eaf66cb.png"]),
        ([media("data", f"data:image/png;base64,{PNG}")], ["image-9eaf66cb.png"]),
        ([{"type": "binary", "mimeType": "image/png", "data": f"data:;base64,{PNG}"}], ["image-9eaf66cb.png"]),
    ],
    ids=["older", "older with a data URL", "data URL", "both", "data URL as data", "data URL as older data"],
)
async def test_a_part_may_have_its_bytes_in_the_older_field_or_in_a_data_url(
    tmp_path: Path, parts: list[Any], names: list[str]
) -> None:
    async with suite(tmp_path, Script(query=answering("alike"), publish=PUBLISH)) as facade:
        assert kinds(await read_events(facade, ask(**make_content(*parts))))[-1] == "RUN_FINISHED"
        query = next(request for request in facade.script.requests if isinstance(request, agent_pb2.QueryRequest))
    assert [reference.name for reference in query.references] == names


async def test_a_run_without_an_id_gets_one(tmp_path: Path) -> None:
    body = {"threadId": "ephemeral", "messages": ask()["messages"]}
    async with suite(tmp_path, Script(query=answering("ho"), publish=PUBLISH)) as facade:
        events = [event for _ in range(2) for event in await read_events(facade, body)]
        queries = [request for request in facade.script.requests if isinstance(request, agent_pb2.QueryRequest)]
    named = [event["runId"] for event in events if event["type"] == "RUN_STARTED"]
    assert named == [query.request_id for query in queries]
    assert len(set(named)) == 2


async def test_null_fields_are_treated_as_absent(tmp_path: Path) -> None:
    nothing = dict.fromkeys(("name", "toolCalls", "toolCallId", "error", "subagentRunId"))
    source = {"type": "data", "value": PNG, "mimeType": None}
    parts: list[Any] = [
        {"type": "text", "text": "hi", "source": None},
        {"type": "image", "text": None, "source": source},
    ]
    body = ask(messages=[nothing | {"id": "u", "role": "user", "content": parts}])
    body |= {"tools": [{"name": "f", "description": None, "parameters": None}]}
    async with suite(tmp_path, Script(query=answering("ho"), publish=PUBLISH)) as facade:
        assert kinds(await read_events(facade, body))[-1] == "RUN_FINISHED"
