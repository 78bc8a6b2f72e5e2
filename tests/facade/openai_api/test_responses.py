"""Responses through the official client; the orchestrator is scripted, all sockets are real."""

import asyncio
from pathlib import Path
from typing import Any

import openai
import orjson
import pytest

from headrace.errors import HeadraceError, InvalidRequest, NotFound, Overloaded, RateLimited
from headrace.v1 import agent_pb2, common_pb2
from services.facade.adapters.call_ids import CallId
from tests.support.facade.fronts import Timing
from tests.support.facade.openai_api import (
    FUNCTION,
    RUN_HEX,
    THOUGHT,
    answer_from,
    client,
    client_call,
    make_retried_run,
    make_run,
    result,
    thinking,
)
from tests.support.facade.scripted import (
    BLOCK,
    CHAT,
    RUN,
    Script,
    Step,
    Suite,
    answering,
    complete,
    delta,
    opening,
    read_all_frames,
    text,
)
from tests.support.timing import within

TOOLS: Any = [{"type": "function", "strict": True} | FUNCTION]
ASK: dict[str, Any] = {"model": "helper", "input": "How warm?"}
ID = f"resp_{RUN_HEX}"


def snapshots() -> list[Step]:
    """Return the run of `thinking` as Attach gives it after its end."""
    past = agent_pb2.ContentSnapshot(content_id=BLOCK, run_id=RUN, text="I look.")
    answer = agent_pb2.ContentSnapshot(content_id=f"{RUN}_c_2", run_id=RUN, text="20 °C")
    thought = agent_pb2.ReasoningSnapshot(reasoning_id=THOUGHT, run_id=RUN, text="Hm")
    return [
        *opening(),
        delta(6, reasoning_snapshot=thought),
        delta(10, content_snapshot=past),
        delta(17, content_snapshot=answer),
        complete(18),
    ]


async def events_of(facade: Suite, **parameters: Any) -> list[Any]:
    """Return the response's events as sent over the wire."""
    async with facade.http.get(f"/v1/responses/{ID}", params={"stream": "true"} | parameters) as response:
        assert response.status == 200, await response.text()
        return [orjson.loads(frame.data) for frame in await read_all_frames(response)]


def _unnumbered(events: list[Any]) -> list[Any]:
    return [event | {"sequence_number": 0} for event in events]


async def test_an_unstreamed_response_has_an_item_for_each_block(tmp_path: Path) -> None:
    async with client(tmp_path, Script(query=thinking())) as (api, _):
        answer = await api.responses.create(**ASK, instructions="Be brief.", metadata={"a": "b"})
    assert (answer.id, answer.status, answer.model) == (ID, "completed", "helper")
    assert [item.type for item in answer.output] == ["reasoning", "message", "message"]
    assert answer.output_text == "I look.20 °C"
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.total_tokens) == (12, 17)
    assert answer.metadata == {"a": "b", "run_id": RUN, "chat_id": CHAT}
    assert answer.created_at == 1_700_000_000


@pytest.mark.parametrize("parallel", [None, True, False])
async def test_parallel_tool_calls_reaches_the_query_and_is_echoed(tmp_path: Path, parallel: bool | None) -> None:
    given: Any = {} if parallel is None else {"parallel_tool_calls": parallel}
    async with client(tmp_path, Script(query=thinking())) as (api, facade):
        answer = await api.responses.create(**ASK, tools=TOOLS, **given)
        (query,) = facade.script.requests
    assert answer.parallel_tool_calls == (parallel is not False)
    assert query.HasField("parallel_tool_calls") == (parallel is not None)
    assert query.parallel_tool_calls == bool(parallel)


async def test_the_official_client_folds_the_stream_into_the_unstreamed_response(tmp_path: Path) -> None:
    async with client(tmp_path, Script(query=thinking())) as (api, _):
        async with api.responses.stream(**ASK) as stream:
            events = [event async for event in stream]
            folded = await stream.get_final_response()
        whole = await api.responses.create(**ASK)
    pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert pieces == ["I ", "look.", "20 °C"]
    assert [event.delta for event in events if event.type == "response.reasoning_text.delta"] == ["Hm"]
    assert [item.model_dump(exclude={"content": {"__all__": {"parsed"}}}) for item in folded.output] == [
        item.model_dump() for item in whole.output
    ]
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")


async def test_sequence_numbers_are_our_seqs_and_resuming_after_any_misses_nothing(tmp_path: Path) -> None:
    async with client(tmp_path, Script(attaches=[thinking()])) as (_, facade):
        events = await events_of(facade)
        numbers = [event["sequence_number"] for event in events]
        assert numbers == sorted(numbers)
        assert [event["sequence_number"] for event in events if event["type"].endswith("text.delta")] == [5, 8, 9, 16]
        assert numbers[-1] == 18
        for cut in range(len(events)):
            later_events = await events_of(facade, starting_after=numbers[cut])
            missed = events[cut + 1 :]
            assert _unnumbered(later_events[len(later_events) - len(missed) :]) == _unnumbered(missed)
            assert all(event["sequence_number"] >= numbers[cut] for event in later_events)


async def test_snapshots_produce_whole_items_with_the_same_numbers(tmp_path: Path) -> None:
    async with client(tmp_path, Script(attaches=[thinking(), snapshots()])) as (_, facade):
        live, past = await events_of(facade), await events_of(facade)
        later_events = await events_of(facade, starting_after="10")
    assert past[-1] == live[-1]
    assert [event for event in past if event["type"].endswith("item.done")] == [
        event for event in live if event["type"].endswith("item.done")
    ]
    assert [event["delta"] for event in later_events if event["type"].endswith("text.delta")] == ["20 °C"]
    assert later_events[0]["output_index"] == 2


async def test_resuming_within_a_block_sends_the_block_again(tmp_path: Path) -> None:
    reopened = [*opening(), delta(4, content_start=agent_pb2.ContentStart(content_id=BLOCK, run_id=RUN))]
    later_steps = [text(7, "one two"), text(8, " three"), *answering(*"abc")[-2:]]
    async with client(tmp_path, Script(attaches=[[*reopened, *later_steps]])) as (_, facade):
        missed_two = await events_of(facade, starting_after="5")
        missed_none = await events_of(facade, starting_after="7")
    assert [event["type"] for event in missed_two[:3]] == [
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
    ]
    assert missed_two[2]["delta"] == "one two"
    assert (missed_none[0]["type"], missed_none[0]["delta"]) == ("response.output_text.delta", " three")


async def test_a_background_run_continues_and_can_be_retrieved(tmp_path: Path) -> None:
    script = Script(query=[*answering("half")[:-2], asyncio.Event()], attaches=[thinking()], run=make_run("running"))
    async with client(tmp_path, script) as (api, facade):
        started = await api.responses.create(**ASK, background=True)
        assert (started.id, started.status, started.background) == (ID, "in_progress", True)
        async with within(2):
            await facade.script.closed.wait()
        assert not facade.script.cancelled.is_set()
        assert facade.script.requests[0].on_disconnect == "continue"
        assert (await api.responses.retrieve(ID)).status == "in_progress"
        script.run = make_run("completed")
        completed = await api.responses.retrieve(ID)
        assert (completed.status, completed.output_text) == ("completed", "I look.20 °C")
        stream = await api.responses.retrieve(ID, stream=True, starting_after=14)
        assert [event.sequence_number async for event in stream][-1] == 18


async def test_an_ended_run_is_returned_in_full_even_when_reading_it_is_slow(tmp_path: Path) -> None:
    *earlier, end = answering("20 °C")
    async with client(tmp_path, Script(attaches=[[*earlier, 1.5, end]], run=make_run("completed"))) as (api, _):
        completed = await api.responses.retrieve(ID)
    assert (completed.status, completed.output_text) == ("completed", "20 °C")


async def test_cancelling_a_response_returns_it_as_cancelled(tmp_path: Path) -> None:
    end = delta(5, run_cancel=agent_pb2.RunCancel(run_id=RUN, usage=common_pb2.Usage(input_tokens=3)))
    async with client(tmp_path, Script(attaches=[[*opening(), end]], run=make_run("running"))) as (api, facade):
        stopped = await api.responses.cancel(ID)
        assert facade.script.cancelled.is_set()
    assert stopped.status == "cancelled"


async def test_a_chat_continues_by_previous_response_or_conversation_id(tmp_path: Path) -> None:
    async with client(tmp_path, Script(query=answering("x"), run=make_run("completed"))) as (api, facade):
        answer = await api.responses.create(**ASK, previous_response_id=ID)
        await api.responses.create(**ASK, conversation=f"conv_{CHAT}")
        assert [request.chat_id for request in facade.script.requests] == [CHAT, CHAT]
    assert answer.previous_response_id == ID
    assert answer.conversation is not None
    assert answer.conversation.id == f"conv_{CHAT}"


async def test_every_input_item_is_added_to_a_continued_chat(tmp_path: Path) -> None:
    items: Any = [
        {"role": "developer", "content": "Answer in French."},
        {"role": "user", "content": "I am in Lyon."},
        {"role": "user", "content": "How warm?"},
    ]
    fields: Any = {"model": "helper", "input": items, "instructions": "Be kind."}
    async with client(tmp_path, Script(query=answering("x"), run=make_run("completed"))) as (api, facade):
        await api.responses.create(**fields, previous_response_id=ID)
        await api.responses.create(**fields, conversation=f"conv_{CHAT}")
        facade.memory.state_error = NotFound("there is no chat")
        await api.responses.create(**fields, conversation=f"conv_{CHAT}")
        queries = facade.script.requests
    assert [query.message for query in queries] == ["How warm?"] * 3
    histories = [[(earlier.role, earlier.content) for earlier in query.history] for query in queries]
    new = [("system", "Answer in French."), ("user", "I am in Lyon.")]
    assert histories == [new, new, [("system", "Be kind."), *new]]


async def test_an_invalid_conversation_id_is_refused_by_its_field(tmp_path: Path) -> None:
    async with client(tmp_path, Script(query=answering("x"))) as (api, facade):
        with pytest.raises(openai.BadRequestError) as caught:
            await api.responses.create(**ASK, conversation="conv_68a0")
        assert not facade.script.requests
    assert (caught.value.param, caught.value.code) == ("conversation", "invalid_request")


@pytest.mark.parametrize("by_id", [True, False])
async def test_a_function_result_is_submitted_to_the_waiting_run(tmp_path: Path, by_id: bool) -> None:
    waits = [*opening(), *client_call(4, "t_0000000a"), asyncio.Event()]
    later_steps = [result(7, "t_0000000a"), *answer_from(8, "20 °C")]
    async with client(tmp_path, Script(query=waits, attaches=[later_steps], run=make_run("waiting"))) as (api, facade):
        response = await api.responses.create(**ASK, tools=TOOLS)
        (call,) = response.output
        assert call.type == "function_call"
        output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "20"}
        if by_id:
            answer = await api.responses.create(model="helper", previous_response_id=response.id, input=[output])
        else:
            history: Any = [{"role": "user", "content": "How warm?"}, call.model_dump(exclude_none=True), output]
            answer = await api.responses.create(model="helper", input=history)
        submit, attach = facade.script.requests[1:]
    assert (response.status, call.name, call.arguments) == ("completed", "thermometer", '{"room":1}')
    assert (answer.id, answer.output_text) == (ID, "20 °C")
    assert (submit.tool_id, submit.payload, attach.last_seq) == ("t_0000000a", "20", 6)


async def test_a_streamed_function_call_is_folded_by_the_official_client(tmp_path: Path) -> None:
    waits = [*opening(), *client_call(4, "t_0000000a"), asyncio.Event()]
    async with client(tmp_path, Script(query=waits, attaches=[waits], run=make_run("waiting"))) as (api, _):
        async with api.responses.stream(**ASK, tools=TOOLS) as stream:
            folded = await stream.get_final_response()
        looked_at = await api.responses.retrieve(folded.id)
    (call,) = folded.output
    assert call.type == "function_call"
    assert (call.call_id, call.arguments) == (str(CallId(RUN, "t_0000000a", 6)), '{"room":1}')
    assert looked_at.status == "completed"
    assert [item.model_dump() for item in looked_at.output] == [call.model_dump(exclude={"parsed_arguments"})]


async def test_a_reset_attempt_is_in_no_response_and_its_open_item_is_closed(tmp_path: Path) -> None:
    script = Script(query=make_retried_run(), attaches=[make_retried_run()], run=make_run("waiting"))
    async with client(tmp_path, script) as (api, facade), asyncio.timeout(50):
        async with api.responses.stream(**ASK, tools=TOOLS) as stream:
            events = [event async for event in stream]
            folded = await stream.get_final_response()
        whole = await api.responses.create(**ASK, tools=TOOLS)
        looked_at = await api.responses.retrieve(ID)
        missed = [await events_of(facade, starting_after=str(seq)) for seq in (8, 14)]
    for answer in (folded, whole, looked_at):
        assert [item.type for item in answer.output] == ["message", "function_call"]
        assert answer.output_text == "I look."
    added = [event.item.id for event in events if event.type == "response.output_item.added"]
    items = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.id for item in items] == added
    assert len(set(added)) == 4
    lost: Any = items[1]
    assert (lost.status, lost.content[0].text) == ("incomplete", "")
    assert [event.text for event in events if event.type == "response.output_text.done"] == ["", "I look."]
    assert [event["type"] for event in missed[0][:3]] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
    ]
    assert missed[0][2]["item"] == lost.model_dump(exclude_unset=True)
    assert missed[1] == missed[0][3:]


async def test_a_failed_run_ends_its_stream_with_response_failed(tmp_path: Path) -> None:
    why = common_pb2.Failure(code="RATE_LIMITED", message="slow down")
    steps = [*opening(), delta(4, run_error=agent_pb2.RunError(run_id=RUN, error=why))]
    async with client(tmp_path, Script(query=steps)) as (api, _):
        events = [event async for event in await api.responses.create(**ASK, stream=True)]
    assert events[-1].type == "response.failed"
    assert events[-1].response.error is not None
    assert (events[-1].response.error.code, events[-1].response.error.message) == ("rate_limit_exceeded", "slow down")


async def test_a_refusal_after_the_headers_is_an_error_event(tmp_path: Path) -> None:
    script = Script(query=[0.05, RateLimited("slow down")])
    async with client(tmp_path, script, Timing(heartbeat_s=0.01)) as (api, _):
        (event,) = [event async for event in await api.responses.create(**ASK, stream=True)]
    assert event.type == "error"
    assert (event.code, event.message, event.sequence_number) == ("rate_limit_exceeded", "slow down", 0)


@pytest.mark.parametrize(("error", "codes"), [(NotFound("no such run"), ["not_found"]), (Overloaded("moved"), [])])
async def test_resuming_a_response_reports_only_permanent_errors(
    tmp_path: Path, error: HeadraceError, codes: list[str]
) -> None:
    async with client(tmp_path, Script(attaches=[[0.05, error]]), Timing(heartbeat_s=0.01)) as (_, facade):
        events = await events_of(facade, starting_after="7")
    assert [event["code"] for event in events] == codes
    assert all(event["sequence_number"] == 7 for event in events)


async def test_null_fields_are_treated_as_absent(tmp_path: Path) -> None:
    nothing = dict.fromkeys(("type", "role", "content", "call_id", "name", "arguments", "output", "id", "status"))
    items: Any = [
        nothing | {"role": "user", "content": "How warm?"},
        nothing | {"type": "function_call", "call_id": "c", "name": "f"},
        nothing | {"type": "function_call_output", "call_id": "c", "output": "20"},
    ]
    async with client(tmp_path, Script(query=answering("x"))) as (api, facade):
        await api.responses.create(input=items, extra_body={"model": None})
        (query,) = facade.script.requests
    assert (query.agent_key, query.message) == ("", "How warm?")
    assert [(message.role, message.content, message.tool_call_id) for message in query.progress] == [
        ("assistant", "", ""),
        ("tool", "20", "c"),
    ]


async def test_a_truncated_answer_is_incomplete(tmp_path: Path) -> None:
    end = delta(6, run_complete=agent_pb2.RunComplete(run_id=RUN, finish_reason="length"))
    async with client(tmp_path, Script(query=[*answering()[:-1], end])) as (api, _):
        answer = await api.responses.create(**ASK)
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"


async def test_a_missing_response_is_404(tmp_path: Path) -> None:
    async with client(tmp_path, Script(attaches=[[NotFound("no such run", runId=RUN)]])) as (api, _):
        with pytest.raises(openai.NotFoundError):
            await api.responses.retrieve("resp_nothing")
        with pytest.raises(openai.NotFoundError):
            await api.responses.retrieve(ID, stream=True)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": [{"type": "image_generation_call"}]}, "input"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
            "input[0].content[0].file_id",
        ),
        ({"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type"),
        ({"conversation": f"conv_{CHAT}", "previous_response_id": ID}, "conversation"),
    ],
)
async def test_an_invalid_request_is_refused_by_its_field(tmp_path: Path, fields: Any, param: str) -> None:
    async with client(tmp_path, Script(query=answering(), run=make_run("completed"))) as (api, _):
        with pytest.raises(openai.BadRequestError) as caught:
            await api.responses.create(**(ASK | fields))
    assert caught.value.param == param


async def test_input_items_keep_their_roles_and_adjacent_calls_form_one_message(
    tmp_path: Path,
) -> None:
    items: Any = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Where?"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "call_id": "fc!1", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "fc!2", "name": "g", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "fc!1", "output": "Lyon"},
        {"type": "function_call_output", "call_id": "fc!2", "output": [{"type": "input_text", "text": "12"}]},
    ]
    async with client(tmp_path, Script(query=thinking())) as (api, facade):
        await api.responses.create(model="helper", instructions="Speak French.", input=items)
        await api.responses.create(model="helper", input=[*items, {"role": "user", "content": "Sure?"}])
        after, before = facade.script.requests
    assert [(earlier.role, earlier.content) for earlier in after.history] == [
        ("system", "Speak French."),
        ("system", "Be brief."),
    ]
    assert [(earlier.role, earlier.content) for earlier in after.progress] == [
        ("assistant", "I look."),
        ("tool", "Lyon"),
        ("tool", "12"),
    ]
    assert [call.id for call in after.progress[0].tool_calls] == ["fc!1", "fc!2"]
    assert [earlier.role for earlier in before.history] == ["system", "user", "assistant", "tool", "tool"]
    assert (after.message, before.message) == ("Where?", "Sure?")


@pytest.mark.parametrize(
    ("call", "output", "name", "arguments", "content"),
    [
        ({"type": "function_call", "name": "f", "arguments": {"a": 1}}, "ok", "f", '{"a":1}', "ok"),
        ({"type": "custom_tool_call", "name": "patch", "input": "*** a"}, "ok", "patch", '{"input":"*** a"}', "ok"),
        (
            {"type": "shell_call", "action": {"commands": ["ls"]}},
            [{"stdout": "a", "outcome": {"type": "exit"}}],
            "shell_call",
            '{"commands":["ls"]}',
            '[{"stdout":"a","outcome":{"type":"exit"}}]',
        ),
        ({"type": "tool_search_call", "arguments": {"query": "x"}}, None, "tool_search_call", '{"query":"x"}', ""),
    ],
    ids=["json", "plain text", "shell", "search"],
)
async def test_items_of_other_tool_types_become_calls_or_are_ignored(
    tmp_path: Path, call: Any, output: Any, name: str, arguments: str, content: str
) -> None:
    items: Any = [
        {"type": "compaction", "encrypted_content": "x"},
        {"role": "user", "content": "Where?"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
        {"call_id": "c", **call},
        {"type": f"{call['type']}_output", "call_id": "c", "output": output},
        {"type": "compaction_trigger"},
    ]
    async with client(tmp_path, Script(query=answering("x"))) as (api, facade):
        await api.responses.create(model="helper", input=items)
        (query,) = facade.script.requests
    (tool_call,) = query.progress[0].tool_calls
    assert (tool_call.id, tool_call.name, tool_call.arguments) == ("c", name, arguments)
    assert [(message.tool_call_id, message.content) for message in query.progress[1:]] == [("c", content)]


async def test_an_invalid_input_item_is_named(tmp_path: Path) -> None:
    wrong = InvalidRequest.of("progress[0].toolCallId", "must be the id of an earlier call")
    items: Any = [
        {"role": "user", "content": "Where?"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call_output", "call_id": "x", "output": "Lyon"},
    ]
    async with client(tmp_path, Script(query=[wrong])) as (api, _):
        with pytest.raises(openai.BadRequestError) as caught:
            await api.responses.create(model="helper", input=items)
    assert caught.value.param == "input[2].tool_call_id"
