"""Chat completions through the official client; the orchestrator is scripted, all sockets are real."""

import asyncio
import json
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from yarl import URL

from headrace.errors import ChatBusy, InvalidRequest, NotFound, Overloaded, RateLimited
from headrace.v1 import agent_pb2, common_pb2
from services.facade.adapters.call_ids import CallId, parse_call_id
from tests.support.facade.fronts import Timing
from tests.support.facade.openai_api import (
    ANSWERED,
    FUNCTION,
    answer_from,
    client,
    client_call,
    make_retried_run,
    make_run,
    own_call,
    past_call,
    reset,
    result,
    thinking,
)
from tests.support.facade.scripted import BLOCK, CHAT, RUN, Script, answering, delta, opening, suite, text
from tests.support.timing import within

TOOLS: Any = [{"type": "function", "function": FUNCTION}]
ASK: dict[str, Any] = {"model": "helper", "messages": ANSWERED}


def join_deltas(chunks: list[ChatCompletionChunk], field: str = "content") -> str:
    return "".join(getattr(chunk.choices[0].delta, field, None) or "" for chunk in chunks if chunk.choices)


async def test_agents_are_listed_as_models(tmp_path: Path) -> None:
    async with client(tmp_path, Script()) as (api, _):
        assert [model.id async for model in api.models.list()] == ["helper"]
        with pytest.raises(openai.NotFoundError) as caught:
            await api.models.retrieve("nobody")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


@pytest.mark.parametrize("path", ["/v1//models", "/v1/models/", "//v1//models//", "/v1/models/?a=%2F"])
async def test_slashes_too_many_lead_to_the_route(tmp_path: Path, path: str) -> None:
    async with client(tmp_path, Script()) as (_, facade):
        address = URL(f"{facade.url}{path}", encoded=True)
        async with facade.http.get(address, allow_redirects=False) as response:
            assert (response.status, response.headers["Location"].partition("?")[0]) == (308, "/v1/models")
        async with facade.http.get("/v1//evil.example/", allow_redirects=False) as response:
            assert response.status == 404


async def test_a_post_keeps_its_body_when_it_is_redirected(tmp_path: Path) -> None:
    async with client(tmp_path, Script(query=answering())) as (_, facade):
        async with facade.http.post(
            "/v1//chat/completions/", json={"model": "helper", "messages": ANSWERED[-1:]}
        ) as answer:
            assert (await answer.json())["choices"][0]["message"]["role"] == "assistant"
        (query,) = facade.script.requests
    assert query.message


async def test_a_stream_has_text_and_reasoning_but_no_internal_tool_calls(tmp_path: Path) -> None:
    async with client(tmp_path, Script(query=thinking())) as (api, facade):
        stream = await api.chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True})
        chunks = [chunk async for chunk in stream]
        (query,) = facade.script.requests
    assert (query.agent_key, query.message, query.on_disconnect) == ("helper", "How warm?", "cancel")
    assert join_deltas(chunks) == "I look.\n\n20 °C"
    assert join_deltas(chunks, "reasoning_content") == "Hm"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert not [chunk for chunk in chunks if chunk.choices and chunk.choices[0].delta.tool_calls]
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.total_tokens) == (12, 17)
    assert {chunk.id for chunk in chunks} == {f"chatcmpl-{RUN}"}


async def test_text_chunks_differ_only_in_their_text(tmp_path: Path) -> None:
    pieces = ["one", "", ' "two"', "\n\u2028drei"]
    async with client(tmp_path, Script(query=answering(*pieces))) as (api, _):
        stream = await api.chat.completions.create(**ASK, stream=True, metadata={"empty": "", "quoted": '""'})
        chunks = [chunk.to_dict() async for chunk in stream]
    texts: list[Any] = [chunk["choices"][0]["delta"].pop("content", None) for chunk in chunks]  # pyright: ignore[reportIndexIssue] - a dict of lists
    assert texts == ["one", ' "two"', "\n\u2028drei", None]
    assert chunks[0].pop("choices") == [
        {"index": 0, "delta": {"role": "assistant"}, "logprobs": None, "finish_reason": None}
    ]
    assert chunks[1]["metadata"] == {"empty": "", "quoted": '""', "run_id": RUN, "chat_id": CHAT}
    assert chunks[1] == chunks[2]


async def test_each_delta_is_sent_as_a_chunk_at_once(tmp_path: Path) -> None:
    gate = asyncio.Event()
    steps = [*opening(), delta(4, content_start=agent_pb2.ContentStart(content_id=BLOCK, run_id=RUN)), text(5, "one")]
    async with client(tmp_path, Script(query=[*steps, gate, text(6, " two"), *answering()[-2:]])) as (api, _):
        stream = await api.chat.completions.create(**ASK, stream=True)
        first = await anext(stream)
        assert first.choices[0].delta.content == "one"
        gate.set()
        assert join_deltas([chunk async for chunk in stream]) == " two"


async def test_an_unstreamed_answer_has_what_the_stream_has(tmp_path: Path) -> None:
    async with client(tmp_path, Script(query=thinking())) as (api, _):
        answer = await api.chat.completions.create(**ASK)
    message = answer.choices[0].message
    assert message.content == "I look.\n\n20 °C"
    assert (message.model_extra or {})["reasoning_content"] == "Hm"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5
    assert answer.metadata == {"run_id": RUN, "chat_id": CHAT}  # pyright: ignore[reportAttributeAccessIssue] - ours


async def test_earlier_messages_become_history_only_in_a_new_chat(tmp_path: Path) -> None:
    messages: Any = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": 'Say "x"\n'}]},
        {"role": "assistant", "content": "x"},
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Again"},
    ]
    async with client(tmp_path, Script(query=answering("x"))) as (api, facade):
        await api.chat.completions.create(model="helper", messages=messages, temperature=0.3, user="ann")
        await api.chat.completions.create(model="helper", messages=messages, metadata={"chat_id": CHAT})
        new, continued = facade.script.requests
    assert [(earlier.role, earlier.content) for earlier in new.history] == [
        ("system", "Be brief."),
        ("user", 'Say "x"\n'),
        ("assistant", "x"),
        ("system", "Be kind."),
    ]
    assert (new.message, new.chat_id) == ("Again", "")
    assert (continued.message, continued.chat_id, continued.when_busy) == ("Again", CHAT, "reject")
    assert not continued.history


async def test_a_chat_created_by_the_request_gets_the_earlier_messages(tmp_path: Path) -> None:
    messages: Any = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "Again"},
    ]
    async with client(tmp_path, Script(query=answering("x"))) as (api, facade):
        facade.memory.state_error = NotFound("there is no chat")
        await api.chat.completions.create(model="helper", messages=messages, metadata={"chat_id": CHAT})
        (query,) = facade.script.requests
    assert (query.chat_id, query.message) == (CHAT, "Again")
    assert [earlier.content for earlier in query.history] == ["Be brief.", "Hello", "Hi"]


async def test_an_invalid_chat_id_is_refused_by_its_field(tmp_path: Path) -> None:
    async with client(tmp_path, Script(query=answering("x"))) as (api, facade):
        with pytest.raises(openai.BadRequestError) as caught:
            await api.chat.completions.create(**ASK, metadata={"chat_id": "my-chat"})
        assert not facade.script.requests
    assert (caught.value.param, caught.value.code) == ("metadata.chat_id", "invalid_request")


def foreign_call(*ids: str) -> Any:
    calls = [{"id": id, "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def foreign_result(id: str) -> Any:
    return {"role": "tool", "tool_call_id": id, "content": "20"}


async def test_tool_calls_of_other_programs_may_have_any_ids(tmp_path: Path) -> None:
    ids = ("toolu_01", "chatcmpl-tool-é/" + "9" * 200)
    history: Any = [*ANSWERED, foreign_call(*ids), foreign_result(ids[0]), foreign_result(ids[1])]
    messages: Any = [*history, {"role": "user", "content": "And now?"}]
    async with client(tmp_path, Script(query=answering("x"))) as (api, facade):
        await api.chat.completions.create(model="helper", messages=messages)
        await api.chat.completions.create(model="helper", messages=history)
        before, after = facade.script.requests
    roles = ["user", "assistant", "tool", "tool"]
    assert ([earlier.role for earlier in before.history], before.message) == (roles, "And now?")
    assert [call.id for call in before.history[1].tool_calls] == [*ids]
    assert before.history[1].tool_calls[0].arguments == '{"a":1}'
    assert [earlier.tool_call_id for earlier in before.history[2:]] == [*ids]
    assert (not after.history, after.message) == (True, ANSWERED[-1]["content"])
    assert [earlier.role for earlier in after.progress] == roles[1:]


async def test_null_fields_are_treated_as_absent(tmp_path: Path) -> None:
    """Programs with one class for all messages send every field of it, often as null."""
    nothing = dict.fromkeys(("name", "tool_calls", "tool_call_id", "refusal", "function_call", "audio"))
    part = {"type": "text", "text": "How warm?", "refusal": None, "image_url": None, "input_audio": None, "file": None}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": None}}
    messages: Any = [
        nothing | {"role": "assistant", "content": None, "tool_calls": [call]},
        nothing | {"role": "tool", "content": "20", "tool_call_id": "c"},
        nothing | {"role": "user", "content": [{"type": "text", "text": None}, part]},
    ]
    choice: Any = {"type": "function", "function": {"name": "thermometer"}, "name": None, "mode": None, "tools": None}
    async with client(tmp_path, Script(query=answering("x"))) as (api, facade):
        await api.chat.completions.create(
            model="helper",
            messages=messages,
            tools=TOOLS,
            tool_choice=choice,
            extra_body={"response_format": {"type": None}},
            extra_headers={"Last-Event-ID": ""},
        )
        (query,) = facade.script.requests
    assert (query.message, query.tool_choice) == ("How warm?", "thermometer")
    assert [(message.role, message.content, message.tool_call_id) for message in query.history] == [
        ("assistant", "", ""),
        ("tool", "20", "c"),
    ]


@pytest.mark.parametrize(
    ("field", "param"),
    [
        ("history[1].toolCallId", "messages[1].tool_call_id"),
        ("clientTools[0].name", "tools[0].name"),
        ("toolChoice", "tool_choice"),
    ],
)
async def test_an_error_of_the_query_names_the_callers_field(tmp_path: Path, field: str, param: str) -> None:
    wrong = InvalidRequest.of(field, "must be another one")
    messages: Any = [*ANSWERED, foreign_result("x"), {"role": "user", "content": "And now?"}]
    async with client(tmp_path, Script(query=[wrong])) as (api, _):
        with pytest.raises(openai.BadRequestError, match="must be another one") as caught:
            await api.chat.completions.create(model="helper", messages=messages)
    assert caught.value.param == param


async def test_tools_other_than_functions_are_ignored(tmp_path: Path) -> None:
    """Some programs send OpenAI's own tools to every server. An error names a tool by its place in the request."""
    tools: Any = [
        {"type": "web_search"},
        {"type": "custom", "custom": {"name": "patch"}},
        *TOOLS,
        {"function": FUNCTION},
    ]
    wrong = InvalidRequest.of("clientTools[0].name", "must be another one")
    async with client(tmp_path, Script(query=[wrong])) as (api, facade):
        with pytest.raises(openai.BadRequestError) as caught:
            await api.chat.completions.create(**ASK, tools=tools)
        (query,) = facade.script.requests
    assert [tool.name for tool in query.client_tools] == ["thermometer"] * 2
    assert caught.value.param == "tools[2].name"


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ({"function": {"name": "f", "arguments": {"a": 1e2}}}, '{"a":100.0}'),
        ({"custom": {"name": "f", "input": '*** "a"'}, "function": None}, '{"input":"*** \\"a\\""}'),
    ],
    ids=["json", "plain text"],
)
async def test_content_parts_and_arguments_of_other_vendors_are_accepted(
    tmp_path: Path, call: Any, arguments: str
) -> None:
    thoughts = [{"type": "thinking", "thinking": "Hm"}, {"type": "text", "text": "I look."}, {"type": "reasoning"}]
    assistant_message = {"role": "assistant", "content": thoughts, "tool_calls": [{"id": "c", **call}]}
    async with client(tmp_path, Script(query=answering("x"))) as (api, facade):
        messages: Any = [*ANSWERED, assistant_message, foreign_result("c")]
        await api.chat.completions.create(model="helper", messages=messages)
        (query,) = facade.script.requests
    earlier = query.progress[0]
    assert (earlier.content, earlier.tool_calls[0].name, earlier.tool_calls[0].arguments) == ("I look.", "f", arguments)


def answer_calls(completion: ChatCompletion) -> Any:
    """Return the messages so far, with a result for each call of the completion."""
    message = completion.choices[0].message
    results = [foreign_result(call.id) for call in message.tool_calls or []]
    return [*ANSWERED, message.model_dump(exclude_none=True), *results]


async def test_a_function_result_is_submitted_to_the_waiting_run(tmp_path: Path) -> None:
    waits = [*opening(), *client_call(4, "t_0000000a"), *client_call(7, "t_0000000b"), asyncio.Event()]
    later_steps = [result(10, "t_0000000a"), result(11, "t_0000000b"), *answer_from(12, "20 °C")]
    script = Script(query=waits, attaches=[later_steps], run=make_run("waiting"))
    async with client(tmp_path, script) as (api, facade):
        completion = await api.chat.completions.create(**ASK, tools=TOOLS)
        calls: Any = completion.choices[0].message.tool_calls
        assert completion.choices[0].finish_reason == "tool_calls"
        assert completion.usage is not None
        assert completion.usage.total_tokens == 0, "the answer that ends the run has them all"
        assert [(call.function.name, call.function.arguments) for call in calls] == [("thermometer", '{"room":1}')] * 2
        assert calls[0].id == str(CallId(RUN, "t_0000000a", 9))
        answer = await api.chat.completions.create(model="helper", messages=answer_calls(completion), tools=TOOLS)
        query, first, second, attach = facade.script.requests
        assert not facade.script.cancelled.is_set()
    assert answer.choices[0].message.content == "20 °C"
    assert (query.on_disconnect, query.client_tools[0].name) == ("continue", "thermometer")
    assert json.loads(query.client_tools[0].parameters) == FUNCTION["parameters"]
    assert (first.run_id, first.tool_id, first.payload) == (RUN, "t_0000000a", "20")
    assert (second.tool_id, attach.last_seq) == ("t_0000000b", 9)


async def test_a_failed_submit_leaves_the_run_waiting_for_the_result(tmp_path: Path) -> None:
    waits = [*opening(), *client_call(4, "t_0000000a"), asyncio.Event()]
    later_steps = [result(7, "t_0000000a"), *answer_from(8, "20 °C")]
    script = Script(
        query=waits, attaches=[later_steps], run=make_run("waiting"), submit_error=Overloaded("its owner is away")
    )
    async with client(tmp_path, script) as (api, facade):
        completion = await api.chat.completions.create(**ASK, tools=TOOLS)
        history = answer_calls(completion)
        with pytest.raises(openai.InternalServerError, match="its owner is away"):
            await api.chat.completions.create(model="helper", messages=history, tools=TOOLS)
        assert not facade.script.cancelled.is_set()
        script.submit_error = None
        answer = await api.chat.completions.create(model="helper", messages=history, tools=TOOLS)
    assert answer.choices[0].message.content == "20 °C"


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answered_call_is_not_sent_again_after_reattaching(tmp_path: Path, stream: bool) -> None:
    waits = [*opening(), *client_call(4, "t_0000000a"), asyncio.Event()]
    later_steps = [result(7, "t_0000000a"), past_call(10, "t_0000000b"), 0.05, result(11, "t_0000000b")]
    script = Script(query=waits, attaches=[[*later_steps, *answer_from(12, "20 °C")]], run=make_run("waiting"))
    async with client(tmp_path, script) as (api, _):
        completion = await api.chat.completions.create(**ASK, tools=TOOLS)
        history = answer_calls(completion)
        answer: Any = await api.chat.completions.create(model="helper", messages=history, tools=TOOLS, stream=stream)
        if stream:
            chunks = [chunk async for chunk in answer]
            assert (join_deltas(chunks), chunks[-1].choices[0].finish_reason) == ("20 °C", "stop")
        else:
            assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("20 °C", "stop")


async def test_a_streamed_function_call_ends_the_answer_while_the_run_continues(tmp_path: Path) -> None:
    # The agent's own tool runs at the same time and prints a lot, which must not delay the caller's function call.
    steps = [*opening(), *client_call(4, "t_0000000a"), *own_call(7)[:3]]
    for seq in range(10, 60):
        steps += [0.02, delta(seq, tool_output=agent_pb2.ToolOutput(tool_id="x", stream="stdout", delta="."))]
    async with client(tmp_path, Script(query=[*steps, asyncio.Event()])) as (api, facade):
        stream = await api.chat.completions.create(**ASK, tools=TOOLS, stream=True)
        chunks = [chunk async for chunk in stream]
        assert not facade.script.cancelled.is_set()
    (call,) = chunks[0].choices[0].delta.tool_calls or []
    parsed = parse_call_id(call.id or "")
    assert parsed is not None
    assert parsed.last_seq < 40
    assert call.function is not None
    assert (call.index, call.function.name, call.function.arguments) == (0, "thermometer", '{"room":1}')
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


async def test_all_function_calls_of_one_model_answer_are_returned_together(
    tmp_path: Path,
) -> None:
    start, args, *end = own_call(7)
    steps = [*opening(), *client_call(4, "t_0000000a"), start, args, 0.6, *end, *client_call(11, "t_0000000b")]
    async with client(tmp_path, Script(query=[*steps, asyncio.Event()])) as (api, _), within(3):
        answer = await api.chat.completions.create(**ASK, tools=TOOLS)
    assert [call.id for call in answer.choices[0].message.tool_calls or []] == [
        str(CallId(RUN, f"t_{call}", 13)) for call in ("0000000a", "0000000b")
    ]


async def test_a_call_with_a_result_from_the_run_is_not_returned(tmp_path: Path) -> None:
    refused = [*opening(), *client_call(4, "t_0000000a"), result(7, "t_0000000a"), 0.4, *answer_from(8, "no")]
    async with client(tmp_path, Script(query=refused)) as (api, _):
        answer = await api.chat.completions.create(**ASK, tools=TOOLS)
    assert (answer.choices[0].finish_reason, answer.choices[0].message.tool_calls) == ("stop", None)


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "messages"),
        ([{"role": "wizard", "content": "a"}], "messages[0].role"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            "messages[0].content[0].image_url",
        ),
        ([{"role": "tool", "tool_call_id": "call_1", "content": "a"}], "messages"),
        ([{"role": "system", "content": "a"}], "messages"),
        ([{"role": "user", "content": ""}], "messages[0]"),
        ("hi", "messages"),
    ],
)
async def test_an_invalid_message_is_refused_by_its_field(tmp_path: Path, messages: Any, param: str) -> None:
    async with client(tmp_path, Script(query=answering())) as (api, _):
        with pytest.raises(openai.BadRequestError) as caught:
            await api.chat.completions.create(model="helper", messages=messages)
    assert (caught.value.param, caught.value.type, caught.value.code) == (
        param,
        "invalid_request_error",
        "invalid_request",
    )


@pytest.mark.parametrize(
    "body",
    [
        b"not json",
        b"[]",
        b'{"model":"helper","messages":"\xff"}',
        b'{"model":"helper","messages":[],"tool_choice":%b%b}' % (b"[" * 100_000, b"]" * 100_000),
        b'{"model":"helper","messages":[],"unknown":%b%b}' % (b"[" * 900, b"]" * 900),
        b'{"model":"helper","messages":[{"role":"user","content":"a"}],"tools":[{"type":"function"}]}',
    ],
    ids=["no JSON", "a list", "no UTF-8", "deep", "deep and unknown", "no name"],
)
async def test_a_body_that_is_no_json_object_is_refused(tmp_path: Path, body: bytes) -> None:
    async with (
        suite(tmp_path, Script(query=answering())) as facade,
        facade.http.post("/v1/chat/completions", data=body, headers={"Content-Type": "application/json"}) as response,
    ):
        assert response.status == 400
        assert (await response.json())["error"]["type"] == "invalid_request_error"


async def test_results_for_only_some_of_the_calls_are_refused(tmp_path: Path) -> None:
    calls = [{"id": str(CallId(RUN, f"t_0000000{n}", 9)), "type": "function", "function": {"name": "f"}} for n in "ab"]
    asking = {"role": "assistant", "content": None, "tool_calls": calls}
    messages: Any = [*ANSWERED, asking, {"role": "tool", "tool_call_id": calls[0]["id"], "content": "1"}]
    async with client(tmp_path, Script(query=answering())) as (api, _):
        with pytest.raises(openai.BadRequestError, match="must have a result for each tool call"):
            await api.chat.completions.create(model="helper", messages=messages)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NotFound("no agent 'x'", field="agentKey"), 404, "model_not_found"),
        (ChatBusy("the chat has a run"), 409, "chat_busy"),
        (RateLimited("slow down", retry_after_s=3), 429, "rate_limit_exceeded"),
        (KeyError("secret"), 500, "server_error"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_failures_have_openais_error_format(
    tmp_path: Path, error: Exception, status: int, code: str, stream: bool
) -> None:
    async with client(tmp_path, Script(query=[error])) as (api, _):
        with pytest.raises(openai.APIStatusError) as caught:
            await api.chat.completions.create(**ASK, stream=stream)
    assert (caught.value.status_code, caught.value.code) == (status, code)
    assert "secret" not in caught.value.message


def failed(seq: int) -> agent_pb2.AgentDelta:
    why = common_pb2.Failure(code="RATE_LIMITED", message="slow down", retriable=True)
    return delta(seq, run_error=agent_pb2.RunError(run_id=RUN, error=why))


@pytest.mark.parametrize(
    ("end", "problem"), [(failed(7), "slow down"), (Overloaded("its owner is gone"), "its owner is gone")]
)
async def test_a_failure_after_the_first_chunk_ends_the_stream_with_an_error(
    tmp_path: Path, end: Any, problem: str
) -> None:
    async with client(tmp_path, Script(query=[*answering("half")[:-2], end])) as (api, _):
        stream = await api.chat.completions.create(**ASK, stream=True)
        assert (await anext(stream)).choices[0].delta.content == "half"
        with pytest.raises(openai.APIError, match=problem):
            await anext(stream)


async def test_a_refusal_after_the_headers_is_an_error_in_the_stream(tmp_path: Path) -> None:
    script = Script(query=[0.05, RateLimited("slow down")])
    async with client(tmp_path, script, Timing(heartbeat_s=0.01)) as (api, _):
        stream = await api.chat.completions.create(**ASK, stream=True)
        with pytest.raises(openai.APIError, match="slow down") as caught:
            await anext(stream)
    assert caught.value.code == "rate_limit_exceeded"


async def test_closing_the_stream_of_a_run_with_functions_cancels_the_run(tmp_path: Path) -> None:
    async with client(tmp_path, Script(query=[*answering("half")[:-2], asyncio.Event()])) as (api, facade):
        stream = await api.chat.completions.create(**ASK, tools=TOOLS, stream=True)
        await anext(stream)
        await stream.close()
        async with within(2):
            await facade.script.cancelled.wait()
            await facade.script.closed.wait()
    assert facade.script.requests[-1].run_id == RUN


async def test_text_repeated_by_a_snapshot_is_not_sent_again(tmp_path: Path) -> None:
    again = [delta(7, content_start=agent_pb2.ContentStart(content_id=BLOCK, run_id=RUN)), text(7, "one two three")]
    async with client(tmp_path, Script(query=[*answering("one ", "two")[:-2], *again, *answering()[-2:]])) as (api, _):
        chunks = [chunk async for chunk in await api.chat.completions.create(**ASK, stream=True)]
    assert join_deltas(chunks) == "one two three"


async def test_a_call_of_a_reset_attempt_is_replaced_by_the_retried_one(tmp_path: Path) -> None:
    async with client(tmp_path, Script(query=make_retried_run())) as (api, _), within(3):
        answer = await api.chat.completions.create(**ASK, tools=TOOLS)
        chunks = [chunk async for chunk in await api.chat.completions.create(**ASK, tools=TOOLS, stream=True)]
    message = answer.choices[0].message
    assert message.content == "I look."
    assert [call.id for call in message.tool_calls or []] == [str(CallId(RUN, "t_0000000c", 20))]
    streamed = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    assert [(call.index, call.id) for call in streamed] == [(0, str(CallId(RUN, "t_0000000c", 20)))]
    assert join_deltas(chunks) == "I lo\n\nI look."  # what was sent stays, and a blank line parts it from what counts


async def test_a_reset_drops_only_the_calls_of_its_own_task(tmp_path: Path) -> None:
    steps: list[Any] = [*opening(), *client_call(4, "t_0000000a"), *client_call(7, "t_0000000b")[:2]]
    for step in steps[3:6]:
        step.task_id = "k1"
    for step in steps[6:]:
        step.task_id = "k2"
    steps += [reset(9, 3, task_id="k2"), asyncio.Event()]
    async with client(tmp_path, Script(query=steps)) as (api, _), within(3):
        answer = await api.chat.completions.create(**ASK, tools=TOOLS)
    assert [call.id for call in answer.choices[0].message.tool_calls or []] == [str(CallId(RUN, "t_0000000a", 9))]


@pytest.mark.parametrize(
    ("code", "details", "status"),
    [
        ("PROVIDER_AUTHENTICATION", {"provider": "sim", "httpStatus": "401"}, 502),
        ("INVALID_REQUEST", {"provider": "sim", "httpStatus": "404"}, 502),
        ("NO_ANSWER", {}, 502),
        ("OUTPUT_MISMATCH", {}, 502),
        ("INVALID_REQUEST", {"field": "message"}, 400),
        ("CONTEXT_LENGTH_EXCEEDED", {"provider": "sim"}, 400),
        ("RATE_LIMITED", {"provider": "sim"}, 429),
    ],
)
async def test_a_provider_side_failure_is_a_server_error_for_the_caller(
    tmp_path: Path, code: str, details: dict[str, str], status: int
) -> None:
    why = common_pb2.Failure(code=code, message="the provider's words", details=json.dumps(details))
    steps = [*opening(), delta(4, run_error=agent_pb2.RunError(run_id=RUN, error=why))]
    async with client(tmp_path, Script(query=steps)) as (api, _):
        with pytest.raises(openai.APIStatusError, match="the provider's words") as caught:
            await api.chat.completions.create(**ASK)
        with pytest.raises(openai.APIStatusError) as streamed:
            await api.chat.completions.create(**ASK, stream=True)
    assert (caught.value.status_code, streamed.value.status_code) == (status, status)
    assert (caught.value.type == "server_error") == (status == 502)
    assert caught.value.response.headers.get("x-should-retry") == ("false" if status == 502 else None)
