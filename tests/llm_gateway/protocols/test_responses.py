"""Requests to OpenAI's Responses, and which parts of an answer are sent back."""

from typing import Any

import orjson
import pytest

from headrace.v1 import common_pb2, llm_pb2
from tests.support.llm_gateway.conversation import SCHEMA, SYSTEM, TOOL, USER, answers, asks, call, read_body
from tests.support.llm_gateway.gateway import Asking, text_message

RESPONSES = {"protocol": "openai_responses"}
HIGH = llm_pb2.Reasoning(enabled=True, effort="HIGH")
LOOP = [
    {
        "match": {"turn": 1},
        "steps": [{"reasoning": ["I ", "look"]}, {"content": "Let me look."}, {"toolCall": "f", "id": "call_1"}],
    },
    {"steps": [{"content": "done"}]},
]


async def test_a_plain_request_has_only_the_required_fields(asking: Asking) -> None:
    async with asking(**RESPONSES, models=[{"name": "sim-1"}], apiKeys=["env:SIM_KEY"]) as gateway:
        gateway.env["SIM_KEY"] = "sk-12345678"
        body = await read_body(gateway)
        request = gateway.sim.requests[-1]
    assert (request.path, request.headers["authorization"]) == ("/v1/responses", "Bearer sk-12345678")
    user = {"role": "user", "content": "hello"}
    assert body == {"model": "sim-1", "input": [user], "stream": True, "store": False}


@pytest.mark.parametrize(
    ("choice", "sent"), [("auto", "auto"), ("required", "required"), ("f", {"type": "function", "name": "f"})]
)
async def test_every_option_is_sent_in_its_field(asking: Asking, choice: str, sent: Any) -> None:
    wishes: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 5, "parallel_tool_calls": False}
    form = common_pb2.OutputFormat(schema=SCHEMA, name="place", strict=True)
    async with asking(**RESPONSES, models=[{"name": "sim-1", "capabilities": ["reasoning", "json_schema"]}]) as gateway:
        body = await read_body(
            gateway, SYSTEM, USER, tools=[TOOL], tool_choice=choice, reasoning=HIGH, output_format=form, **wishes
        )
    assert body["instructions"] == "be brief"
    assert body["reasoning"] == {"effort": "high", "summary": "auto"}
    assert body["include"] == ["reasoning.encrypted_content"]
    assert (body["temperature"], body["top_p"], body["max_output_tokens"]) == (0.5, 0.9, 16)
    assert (body["tool_choice"], body["parallel_tool_calls"]) == (sent, False)
    [tool] = body["tools"]
    assert (tool["type"], tool["name"], tool["strict"], tool["parameters"]["type"]) == (
        "function",
        "f",
        False,
        "object",
    )
    assert body["text"]["format"].pop("schema")["type"] == "object"
    assert body["text"]["format"] == {"type": "json_schema", "name": "place", "strict": True}


async def test_a_tool_loop_sends_the_answers_items_back_unchanged(asking: Asking) -> None:
    fields: dict[str, Any] = {"tools": [TOOL], "reasoning": HIGH}
    async with asking(LOOP, **RESPONSES) as gateway:
        chat_result = await gateway.chat(**fields)
        state = next(delta.provider_state for delta in chat_result.deltas if delta.provider_state)
        answer = asks(call("call_1"), text="Let me look.", provider_state=state)
        body = await read_body(gateway, USER, answer, answers("call_1"), USER, **fields)
        thought, message, called, result, _ = body["input"][1:]
        assert (thought["type"], thought["summary"][0]["text"], thought["id"][:3]) == ("reasoning", "I look", "rs_")
        assert thought["encrypted_content"]
        assert (message["type"], message["content"], message["id"][:4]) == (
            "message",
            [{"type": "output_text", "text": "Let me look."}],
            "msg_",
        )
        assert (called["type"], called["call_id"], called["arguments"]) == ("function_call", "call_1", "{}")
        assert result == {"type": "function_call_output", "call_id": "call_1", "output": "done"}


@pytest.mark.parametrize("text", ["Let me", "Let me look. More."])
async def test_a_changed_answer_is_sent_back_as_text_and_calls_only(asking: Asking, text: str) -> None:
    items = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        {"type": "message", "id": "msg_1", "role": "assistant", "chars": 12},
        {"type": "function_call", "id": "fc_1", "call": True},
    ]
    state = orjson.dumps({"provider": "sim", "output_items": items}).decode()
    async with asking(**RESPONSES) as gateway:
        body = await read_body(
            gateway, USER, asks(call("a"), text=text, provider_state=state), answers("a"), tools=[TOOL]
        )
    assert body["input"][1:3] == [
        {"role": "assistant", "content": text},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
    ]


async def test_a_reasoning_item_without_an_answer_is_not_sent_back(asking: Asking) -> None:
    items = [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}]
    state = orjson.dumps({"provider": "sim", "output_items": items}).decode()
    thought = llm_pb2.Message(role="assistant", provider_state=state, reasoning_content="hm")
    async with asking(**RESPONSES) as gateway:
        body = await read_body(gateway, USER, thought, text_message("user", "Well?"))
    assert {item["role"] for item in body["input"]} == {"user"}


async def test_items_whose_reasoning_cannot_be_sent_back_have_no_ids(asking: Asking) -> None:
    """ "Item 'msg_…' was provided without its required 'reasoning' item":
    https://github.com/openai/openai-dotnet/issues/1050, 2026-03."""
    message = {"type": "message", "id": "msg_1", "role": "assistant", "phase": "commentary"}
    called = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}"}
    items = [{"type": "reasoning", "id": "rs_1", "summary": []}, message | {"content": [{"text": "I look."}]}, called]
    response = {"status": "completed", "output": items}
    stream = f"data: {orjson.dumps({'type': 'response.completed', 'response': response}).decode()}\n\n"
    async with asking([{"steps": [{"raw": stream}, {"end": True}], "opening": False}], **RESPONSES) as gateway:
        result = await gateway.chat(tools=[TOOL])
        [state] = [delta.provider_state for delta in result.deltas if delta.provider_state]
    async with asking(**RESPONSES) as gateway:
        answer = asks(call("call_1"), text="I look.", provider_state=state)
        body = await read_body(gateway, USER, answer, answers("call_1"), tools=[TOOL])
    assert body["input"][1]["phase"] == "commentary"
    assert not [item["id"] for item in body["input"] if "id" in item]


async def test_members_without_a_value_stay_away(asking: Asking) -> None:
    """xAI: "Could not decode the compaction blob" (https://github.com/lidge-jun/opencodex/pull/2237, 2026-08)."""
    nothing = {"content": None, "status": None, "phase": None}
    items = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"} | nothing,
        {"type": "message", "id": "msg_1", "role": "assistant"} | nothing | {"content": [{"text": "I look."}]},
    ]
    response = {"status": "completed", "output": items}
    stream = f"data: {orjson.dumps({'type': 'response.completed', 'response': response}).decode()}\n\n"
    async with asking([{"steps": [{"raw": stream}, {"end": True}], "opening": False}], **RESPONSES) as gateway:
        answer = await gateway.chat()
        [state] = [delta.provider_state for delta in answer.deltas if delta.provider_state]
    assert "null" not in state


async def test_items_with_ids_that_are_too_long_go_back_without_ids(asking: Asking) -> None:
    """https://github.com/can1357/oh-my-pi/issues/284, 2026-03: "Invalid 'input[2].id': string too long."""
    items = [
        {"type": "reasoning", "id": "r" * 416, "summary": [], "encrypted_content": "x"},
        {"type": "function_call", "id": "fc_1", "call": True},
    ]
    state = orjson.dumps({"provider": "sim", "output_items": items}).decode()
    async with asking(**RESPONSES) as gateway:
        await gateway.chat(USER, asks(call("a"), provider_state=state), answers("a"), tools=[TOOL])
        body = gateway.sim.requests[0].body
    assert [item.get("type") for item in body["input"][1:]] == ["reasoning", "function_call", "function_call_output"]
    assert not [item["id"] for item in body["input"] if "id" in item]


async def test_results_and_questions_may_have_images_and_files(asking: Asking) -> None:
    image = llm_pb2.ContentPart(image=llm_pb2.ImagePart(data=b"png", mime_type="image/png", detail="low"))
    report = llm_pb2.ContentPart(file=llm_pb2.FilePart(data=b"pdf", mime_type="application/pdf", name="a.pdf"))
    result = answers("a", "seen")
    result.content.append(image)
    user = llm_pb2.Message(role="user", content=[report])
    async with asking(**RESPONSES, models=[{"name": "sim-1"}]) as gateway:
        body = await read_body(gateway, USER, asks(call("a")), result, user, tools=[TOOL])
    assert body["input"][2]["output"] == [
        {"type": "input_text", "text": "seen"},
        {"type": "input_image", "image_url": "data:image/png;base64,cG5n", "detail": "low"},
    ]
    assert body["input"][3]["content"] == [
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,cGRm"}
    ]
