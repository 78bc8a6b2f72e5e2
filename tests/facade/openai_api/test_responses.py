"""Responses by the official client; the orchestrator is scripted, all sockets are real."""

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
    a_run,
    answer_from,
    asked_again,
    client,
    client_call,
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
    frames_of,
    opening,
    text,
)
from tests.support.timing import within

TOOLS: Any = [{"type": "function", "strict": True} | FUNCTION]
ASK: dict[str, Any] = {"model": "helper", "input": "How warm?"}
ID = f"resp_{RUN_HEX}"


def snapshots() -> list[Step]:
    """The run of `thinking` as attaching to it after its end gives it."""
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
    """The events of the response, as they are on the wire."""
    async with facade.http.get(f"/v1/responses/{ID}", params={"stream": "true"} | parameters) as response:
        assert response.status == 200, await response.text()
        return [orjson.loads(frame.data) for frame in await frames_of(response)]


def _unnumbered(events: list[Any]) -> list[Any]:
    return [event | {"sequence_number": 0} for event in events]


async def test_one_answer_has_an_item_for_each_block(tmp_path: Path) -> None:
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
async def test_parallel_tool_calls_reach_the_query_and_are_said_again(tmp_path: Path, parallel: bool | None) -> None:
    given: Any = {} if parallel is None else {"parallel_tool_calls": parallel}
    async with client(tmp_path, Script(query=thinking())) as (api, facade):
        answer = await api.responses.create(**ASK, tools=TOOLS, **given)
        (query,) = facade.script.requests
    assert answer.parallel_tool_calls == (parallel is not False)
    assert query.HasField("parallel_tool_calls") == (parallel is not None)
    assert query.parallel_tool_calls == bool(parallel)


async def test_the_officials_fold_of_the_stream_is_the_whole_answer(tmp_path: Path) -> None:
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


async def test_sequence_numbers_are_our_seqs_and_coming_back_after_any_misses_nothing(tmp_path: Path) -> None:
    async with client(tmp_path, Script(attaches=[thinking()])) as (_, facade):
        events = await events_of(facade)
        numbers = [event["sequence_number"] for event in events]
        assert numbers == sorted(numbers)
        assert [event["sequence_number"] for event in events if event["type"].endswith("text.delta")] == [5, 8, 9, 16]
        assert numbers[-1] == 18
        for cut in range(len(events)):
            rest = await events_of(facade, starting_after=numbers[cut])
            missed = events[cut + 1 :]
            assert _unnumbered(rest[len(rest) - len(missed) :]) == _unnumbered(missed)
            assert all(event["sequence_number"] >= numbers[cut] for event in rest)


async def test_snapshots_give_whole_items_with_the_same_numbers(tmp_path: Path) -> None:
    async with client(tmp_path, Script(attaches=[thinking(), snapshots()])) as (_, facade):
        live, past = await events_of(facade), await events_of(facade)
        rest = await events_of(facade, starting_after="10")
    assert past[-1] == live[-1]
    assert [event for event in past if event["type"].endswith("item.done")] == [
        event for event in live if event["type"].endswith("item.done")
    ]
    assert [event["delta"] for event in rest if event["type"].endswith("text.delta")] == ["20 °C"]
    assert rest[0]["output_index"] == 2


async def test_coming_back_within_a_block_gives_the_block_again(tmp_path: Path) -> None:
    reopened = [*opening(), delta(4, content_start=agent_pb2.ContentStart(content_id=BLOCK, run_id=RUN))]
    rest = [text(7, "one two"), text(8, " three"), *answering(*"abc")[-2:]]
    async with client(tmp_path, Script(attaches=[[*reopened, *rest]])) as (_, facade):
        missed_two = await events_of(facade, starting_after="5")
        missed_none = await events_of(facade, starting_after="7")
    assert [event["type"] for event in missed_two[:3]] == [
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
    ]
    assert missed_two[2]["delta"] == "one two"
    assert (missed_none[0]["type"], missed_none[0]["delta"]) == ("response.output_text.delta", " three")


async def test_a_background_run_is_left_alone_and_looked_at(tmp_path: Path) -> None:
    script = Script(query=[*answering("half")[:-2], asyncio.Event()], attaches=[thinking()], run=a_run("running"))
    async with client(tmp_path, script) as (api, facade):
        begun = await api.responses.create(**ASK, background=True)
        assert (begun.id, begun.status, begun.background) == (ID, "in_progress", True)
        async with within(2):
            await facade.script.closed.wait()
        assert not facade.script.cancelled.is_set()
        assert facade.script.requests[0].on_disconnect == "continue"
        assert (await api.responses.retrieve(ID)).status == "in_progress"
        script.run = a_run("completed")
        done = await api.responses.retrieve(ID)
        assert (done.status, done.output_text) == ("completed", "I look.20 °C")
        stream = await api.responses.retrieve(ID, stream=True, starting_after=14)
        assert [event.sequence_number async for event in stream][-1] == 18


async def test_a_run_that_has_ended_is_told_whole_however_long_it_takes_to_read(tmp_path: Path) -> None:
    *begun, end = answering("20 °C")
    async with client(tmp_path, Script(attaches=[[*begun, 1.5, end]], run=a_run("completed"))) as (api, _):
        done = await api.responses.retrieve(ID)
    assert (done.status, done.output_text) == ("completed", "20 °C")


async def test_a_response_is_cancelled_and_then_told(tmp_path: Path) -> None:
    end = delta(5, run_cancel=agent_pb2.RunCancel(run_id=RUN, usage=common_pb2.Usage(input_tokens=3)))
    async with client(tmp_path, Script(attaches=[[*opening(), end]], run=a_run("running"))) as (api, facade):
        stopped = await api.responses.cancel(ID)
        assert facade.script.cancelled.is_set()
    assert stopped.status == "cancelled"


async def test_a_chat_goes_on_by_the_id_of_its_last_response(tmp_path: Path) -> None:
    async with client(tmp_path, Script(query=answering("x"), run=a_run("completed"))) as (api, facade):
        answer = await api.responses.create(**ASK, previous_response_id=ID)
        await api.responses.create(**ASK, conversation=f"conv_{CHAT}")
        assert [request.chat_id for request in facade.script.requests] == [CHAT, CHAT]
    assert answer.previous_response_id == ID
    assert answer.conversation is not None
    assert answer.conversation.id == f"conv_{CHAT}"


async def test_all_of_the_input_is_new_to_a_chat_that_goes_on(tmp_path: Path) -> None:
    items: Any = [
        {"role": "developer", "content": "Answer in French."},
        {"role": "user", "content": "I am in Lyon."},
        {"role": "user", "content": "How warm?"},
    ]
    asked: Any = {"model": "helper", "input": items, "instructions": "Be kind."}
    async with client(tmp_path, Script(query=answering("x"), run=a_run("completed"))) as (api, facade):
        await api.responses.create(**asked, previous_response_id=ID)
        await api.responses.create(**asked, conversation=f"conv_{CHAT}")
        facade.memory.state_error = NotFound("there is no chat")
        await api.responses.create(**asked, conversation=f"conv_{CHAT}")
        queries = facade.script.requests
    assert [query.message for query in queries] == ["How warm?"] * 3
    said = [[(earlier.role, earlier.content) for earlier in query.history] for query in queries]
    new = [("system", "Answer in French."), ("user", "I am in Lyon.")]
    assert said == [new, new, [("system", "Be kind."), *new]]


async def test_a_conversation_that_cannot_be_a_chat_is_refused_by_name(tmp_path: Path) -> None:
    async with client(tmp_path, Script(query=answering("x"))) as (api, facade):
        with pytest.raises(openai.BadRequestError) as caught:
            await api.responses.create(**ASK, conversation="conv_68a0")
        assert not facade.script.requests
    assert (caught.value.param, caught.value.code) == ("conversation", "invalid_request")


@pytest.mark.parametrize("by_id", [True, False])
async def test_a_functions_result_goes_to_the_run_that_waits(tmp_path: Path, by_id: bool) -> None:
    waits = [*opening(), *client_call(4, "t_0000000a"), asyncio.Event()]
    rest = [result(7, "t_0000000a"), *answer_from(8, "20 °C")]
    async with client(tmp_path, Script(query=waits, attaches=[rest], run=a_run("waiting"))) as (api, facade):
        asked = await api.responses.create(**ASK, tools=TOOLS)
        (call,) = asked.output
        assert call.type == "function_call"
        output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "20"}
        if by_id:
            answer = await api.responses.create(model="helper", previous_response_id=asked.id, input=[output])
        else:
            history: Any = [{"role": "user", "content": "How warm?"}, call.model_dump(exclude_none=True), output]
            answer = await api.responses.create(model="helper", input=history)
        submit, attach = facade.script.requests[1:]
    assert (asked.status, call.name, call.arguments) == ("completed", "thermometer", '{"room":1}')
    assert (answer.id, answer.output_text) == (ID, "20 °C")
    assert (submit.tool_id, submit.payload, attach.last_seq) == ("t_0000000a", "20", 6)


async def test_a_streamed_function_call_is_folded_by_the_official_client(tmp_path: Path) -> None:
    waits = [*opening(), *client_call(4, "t_0000000a"), asyncio.Event()]
    async with client(tmp_path, Script(query=waits, attaches=[waits], run=a_run("waiting"))) as (api, _):
        async with api.responses.stream(**ASK, tools=TOOLS) as stream:
            folded = await stream.get_final_response()
        looked_at = await api.responses.retrieve(folded.id)
    (call,) = folded.output
    assert call.type == "function_call"
    assert (call.call_id, call.arguments) == (str(CallId(RUN, "t_0000000a", 6)), '{"room":1}')
    assert looked_at.status == "completed"
    assert [item.model_dump() for item in looked_at.output] == [call.model_dump(exclude={"parsed_arguments"})]


async def test_what_broke_off_is_in_no_response_and_its_open_item_ends(tmp_path: Path) -> None:
    script = Script(query=asked_again(), attaches=[asked_again()], run=a_run("waiting"))
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
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.id for item in done] == added
    assert len(set(added)) == 4
    lost: Any = done[1]
    assert (lost.status, lost.content[0].text) == ("incomplete", "")
    assert [event.text for event in events if event.type == "response.output_text.done"] == ["", "I look."]
    assert [event["type"] for event in missed[0][:3]] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
    ]
    assert missed[0][2]["item"] == lost.model_dump(exclude_unset=True)
    assert missed[1] == missed[0][3:]


async def test_a_run_that_fails_says_so_in_its_stream(tmp_path: Path) -> None:
    why = common_pb2.Failure(code="RATE_LIMITED", message="slow down")
    steps = [*opening(), delta(4, run_error=agent_pb2.RunError(run_id=RUN, error=why))]
    async with client(tmp_path, Script(query=steps)) as (api, _):
        events = [event async for event in await api.responses.create(**ASK, stream=True)]
    assert events[-1].type == "response.failed"
    assert events[-1].response.error is not None
    assert (events[-1].response.error.code, events[-1].response.error.message) == ("rate_limit_exceeded", "slow down")


async def test_a_refusal_behind_the_headers_is_an_error_event(tmp_path: Path) -> None:
    script = Script(query=[0.05, RateLimited("slow down")])
    async with client(tmp_path, script, Timing(heartbeat_s=0.01)) as (api, _):
        (event,) = [event async for event in await api.responses.create(**ASK, stream=True)]
    assert event.type == "error"
    assert (event.code, event.message, event.sequence_number) == ("rate_limit_exceeded", "slow down", 0)


@pytest.mark.parametrize(("error", "told"), [(NotFound("no such run"), ["not_found"]), (Overloaded("moved"), [])])
async def test_coming_back_to_a_response_fails_only_for_good(
    tmp_path: Path, error: HeadraceError, told: list[str]
) -> None:
    async with client(tmp_path, Script(attaches=[[0.05, error]]), Timing(heartbeat_s=0.01)) as (_, facade):
        events = await events_of(facade, starting_after="7")
    assert [event["code"] for event in events] == told
    assert all(event["sequence_number"] == 7 for event in events)


async def test_null_is_as_good_as_nothing(tmp_path: Path) -> None:
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
    assert [(one.role, one.content, one.tool_call_id) for one in query.progress] == [
        ("assistant", "", ""),
        ("tool", "20", "c"),
    ]


async def test_an_answer_that_was_cut_is_incomplete(tmp_path: Path) -> None:
    end = delta(6, run_complete=agent_pb2.RunComplete(run_id=RUN, finish_reason="length"))
    async with client(tmp_path, Script(query=[*answering()[:-1], end])) as (api, _):
        answer = await api.responses.create(**ASK)
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"


async def test_what_is_not_there_is_404(tmp_path: Path) -> None:
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
async def test_what_cannot_be_asked_is_refused_by_name(tmp_path: Path, fields: Any, param: str) -> None:
    async with client(tmp_path, Script(query=answering(), run=a_run("completed"))) as (api, _):
        with pytest.raises(openai.BadRequestError) as caught:
            await api.responses.create(**(ASK | fields))
    assert caught.value.param == param


async def test_items_of_an_input_list_keep_their_roles_and_the_calls_of_one_answer_are_one_message(
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
        behind, before = facade.script.requests
    assert [(earlier.role, earlier.content) for earlier in behind.history] == [
        ("system", "Speak French."),
        ("system", "Be brief."),
    ]
    assert [(earlier.role, earlier.content) for earlier in behind.progress] == [
        ("assistant", "I look."),
        ("tool", "Lyon"),
        ("tool", "12"),
    ]
    assert [call.id for call in behind.progress[0].tool_calls] == ["fc!1", "fc!2"]
    assert [earlier.role for earlier in before.history] == ["system", "user", "assistant", "tool", "tool"]
    assert (behind.message, before.message) == ("Where?", "Sure?")


@pytest.mark.parametrize(
    ("call", "output", "name", "arguments", "told"),
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
async def test_items_that_a_program_keeps_of_other_tools_are_calls_or_left_out(
    tmp_path: Path, call: Any, output: Any, name: str, arguments: str, told: str
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
    (asked,) = query.progress[0].tool_calls
    assert (asked.id, asked.name, asked.arguments) == ("c", name, arguments)
    assert [(one.tool_call_id, one.content) for one in query.progress[1:]] == [("c", told)]


async def test_a_wrong_item_is_named(tmp_path: Path) -> None:
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
