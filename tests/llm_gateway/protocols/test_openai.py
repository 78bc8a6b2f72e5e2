"""Requests as the provider receives them, read back from the simulator, which checks call-result pairs as strictly as a
provider."""

import re
from typing import Any

import orjson
import pytest

from headrace.v1 import llm_pb2
from services.llm_gateway.fitting.fitted_request import fit_call_id
from services.llm_gateway.providers.provider_file import Provider
from tests.support.llm_gateway.conversation import SYSTEM, TOOL, USER, answers, asks, call, read_body
from tests.support.llm_gateway.gateway import Asking, text_message


async def test_a_plain_request_has_only_the_required_fields(asking: Asking) -> None:
    async with asking() as gateway:
        body = await read_body(gateway)
    assert body == {
        "model": "sim-1",
        "messages": [{"role": "user", "content": "hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_every_option_is_sent_under_the_providers_name(asking: Asking) -> None:
    options = {"temperature": 0.0, "top_p": 0.5, "max_tokens": 7, "parallel_tool_calls": False, "tool_choice": "f"}
    async with asking() as gateway:
        body = await read_body(gateway, tools=[TOOL], **options)
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.0, 0.5, 7)
    assert body["parallel_tool_calls"] is False
    assert body["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert body["tools"][0]["function"]["name"] == "f"


async def test_the_output_limit_is_sent_under_the_configured_name(asking: Asking) -> None:
    async with asking(outputLimit="max_completion_tokens") as gateway:
        body = await read_body(gateway, max_tokens=7)
    assert body["max_completion_tokens"] == 7
    assert "max_tokens" not in body


FITTING = "D681PevKs"
FOREIGN = ("call_8hQ1", "toolu_01A09q90qw90lq917835lq9", "x" * 256, "call-with–a-dash", "123456789\n")


@pytest.mark.parametrize("foreign", FOREIGN)
async def test_foreign_call_ids_become_nine_characters_where_required(asking: Asking, foreign: str) -> None:
    messages = [USER, asks(call(FITTING), call(foreign)), answers(FITTING), answers(foreign)]
    async with asking(callIds="nine_characters") as gateway:
        body, again = await read_body(gateway, *messages), await read_body(gateway, *messages)
    call_ids = [item["id"] for item in body["messages"][1]["tool_calls"]]
    assert call_ids == [message["tool_call_id"] for message in body["messages"][2:]]
    assert call_ids[0] == FITTING
    assert re.fullmatch("[a-zA-Z0-9]{9}", call_ids[1])
    assert body == again


def test_nine_character_ids_stay_unique() -> None:
    provider = Provider.model_validate(
        {
            "key": "m",
            "protocol": "openai",
            "baseUrl": "http://m",
            "models": [{"name": "m"}],
            "callIds": "nine_characters",
        }
    )
    assert len({fit_call_id(f"call_{number}", provider) for number in range(20_000)}) == 20_000


async def test_calls_results_text_and_reasoning_are_converted(asking: Asking) -> None:
    assistant = asks(call("a"), call("b", '{"cut": '), text="Let me look.")
    assistant.reasoning_content = "hm"
    messages = [SYSTEM, USER, assistant, answers("a"), answers("b")]
    async with asking(reasoning="enable_thinking") as gateway:
        body = await read_body(gateway, *messages)
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "tool", "tool"]
    formed = body["messages"][2]
    assert (formed["content"], formed["reasoning_content"]) == ("Let me look.", "hm")
    assert [item["function"]["arguments"] for item in formed["tool_calls"]] == ["{}", "{}"]
    assert body["messages"][3] == {"role": "tool", "content": "done", "tool_call_id": "a"}


@pytest.mark.parametrize(("model", "name"), [("sim-1", None), ("google/gemini-3-flash", "f")])
async def test_gemini_receives_the_names_of_tool_results(asking: Asking, model: str, name: str | None) -> None:
    """Its API refuses a result without a name: https://github.com/NousResearch/hermes-agent/pull/19728, 2026-05."""
    result = text_message("tool", "done", tool_call_id="a")
    async with asking(models=[{"name": model}]) as gateway:
        body = await read_body(gateway, USER, asks(call("a")), result, model=model)
    assert body["messages"][-1].get("name") == name


async def test_a_request_of_several_mebibytes_is_sent_in_full(asking: Asking) -> None:
    text = "水" * 1_000_000
    async with asking() as gateway:
        body = await read_body(gateway, text_message("user", text))
    assert body["messages"][0]["content"] == text


async def test_images_of_tool_results_are_sent_in_a_user_message_after_them(asking: Asking) -> None:
    image = llm_pb2.ContentPart(image=llm_pb2.ImagePart(data=b"png", mime_type="image/png"))
    messages = [
        text_message("user", "look"),
        llm_pb2.Message(role="assistant", tool_calls=[llm_pb2.ToolCall(id=id, name="look") for id in "ab"]),
        *(
            llm_pb2.Message(
                role="tool", tool_call_id=id, name="look", content=[llm_pb2.ContentPart(text=f"seen {id}"), image]
            )
            for id in "ab"
        ),
    ]
    async with asking() as gateway:
        ending = await read_body(gateway, *messages)
        continued = await read_body(gateway, *messages, text_message("user", "and?"))
    image_block = {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}}
    note = {"type": "text", "text": "[in the result of look]"}
    assert [message["content"] for message in ending["messages"][2:]] == [
        "seen a",
        "seen b",
        [note, image_block, note, image_block],
    ]
    assert [message["role"] for message in ending["messages"][2:]] == ["tool", "tool", "user"]
    assert continued["messages"][:-1] == ending["messages"][:-1]
    assert continued["messages"][-1]["content"] == [
        note,
        image_block,
        note,
        image_block,
        {"type": "text", "text": "and?"},
    ]


async def test_an_image_and_adjacent_text_are_converted(asking: Asking) -> None:
    image = llm_pb2.ImagePart(data=b"png", mime_type="image/png", detail="low")
    parts = [llm_pb2.ContentPart(text="what is this?"), llm_pb2.ContentPart(image=image)]
    async with asking() as gateway:
        body = await read_body(gateway, llm_pb2.Message(role="user", content=parts))
    url = {"url": "data:image/png;base64,cG5n", "detail": "low"}
    text = {"type": "text", "text": "what is this?"}
    assert body["messages"][0]["content"] == [text, {"type": "image_url", "image_url": url}]


@pytest.mark.parametrize(
    ("form", "wish", "expected"),
    [
        ("reasoning_effort", {"enabled": True, "effort": "LOW"}, {"reasoning_effort": "low"}),
        ("reasoning_effort", {"enabled": False}, {}),
        ("enable_thinking", {"enabled": True, "effort": "HIGH"}, {"enable_thinking": True, "thinking_budget": 16384}),
        ("enable_thinking", {"enabled": False, "effort": "HIGH"}, {"enable_thinking": False}),
        ("thinking", {"enabled": True}, {"thinking": {"type": "enabled"}}),
        (
            "thinking",
            {"enabled": True, "effort": "MEDIUM"},
            {"thinking": {"type": "enabled"}, "reasoning_effort": "medium"},
        ),
        ("thinking", {"enabled": False, "effort": "LOW"}, {"thinking": {"type": "disabled"}}),
        ("reasoning", {"enabled": True, "effort": "LOW"}, {"reasoning": {"effort": "low"}}),
        ("reasoning", {"enabled": True}, {"reasoning": {"enabled": True}}),
        ("reasoning", {"enabled": False}, {"reasoning": {"effort": "none"}}),
        (
            "chat_template_kwargs",
            {"enabled": False, "effort": "LOW"},
            {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}},
        ),
        ("reasoning_split", {"enabled": True}, {"reasoning_split": True, "thinking": {"type": "adaptive"}}),
        ("reasoning_split", {"enabled": False}, {"reasoning_split": True, "thinking": {"type": "disabled"}}),
    ],
)
async def test_reasoning_is_requested_in_the_providers_form(
    asking: Asking, form: str, wish: dict[str, Any], expected: dict[str, Any]
) -> None:
    async with asking(reasoning=form) as gateway:
        body = await read_body(gateway, reasoning=llm_pb2.Reasoning(**wish))
        plain = await read_body(gateway, model="bench-1x0ms", reasoning=llm_pb2.Reasoning(**wish))
    reasoning_fields = {
        name: value for name, value in body.items() if name not in ("model", "messages", "stream", "stream_options")
    }
    assert reasoning_fields == expected
    assert not reasoning_fields.keys() & plain.keys(), "a model that cannot reason is not asked to"


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("reasoning_effort", {}),
        ("enable_thinking", {"reasoning_content": "hm"}),
        ("thinking", {"reasoning_content": "hm"}),
        ("reasoning", {"reasoning": "hm"}),
        ("chat_template_kwargs", {"reasoning": "hm", "reasoning_content": "hm"}),
        ("reasoning_split", {"reasoning_content": "hm"}),
    ],
)
async def test_reasoning_is_sent_back_in_the_providers_form(
    asking: Asking, form: str, expected: dict[str, Any]
) -> None:
    assistant = text_message("assistant", "yes", reasoning_content="hm")
    async with asking(reasoning=form) as gateway:
        body = await read_body(gateway, USER, assistant, USER)
    assert body["messages"][1] == {"role": "assistant", "content": "yes"} | expected


@pytest.mark.parametrize(("provider", "is_given"), [("sim", True), ("other", False)])
async def test_provider_state_is_sent_back_only_to_its_provider(asking: Asking, provider: str, is_given: bool) -> None:
    details = [{"type": "reasoning.text", "text": "hm", "signature": "c2ln", "index": 0}]
    state = orjson.dumps({"provider": provider, "reasoning_details": details}).decode()
    assistant = text_message("assistant", "yes", reasoning_content="hm", provider_state=state)
    async with asking(reasoning="reasoning") as gateway:
        body = await read_body(gateway, USER, assistant, USER)
    expected = {"reasoning_details": details} if is_given else {"reasoning": "hm"}
    assert body["messages"][1] == {"role": "assistant", "content": "yes"} | expected


async def test_fields_a_provider_added_to_calls_and_text_are_sent_back(asking: Asking) -> None:
    signature = {"google": {"thought_signature": "c2ln"}}
    fields = [{"at": 0, "extra_content": signature}]
    packed = {"provider": "sim", "call_fields": fields, "message_fields": [{"extra_content": signature}]}
    assistant = asks(call("a1"), call("b2"))
    assistant.provider_state = orjson.dumps(packed).decode()
    async with asking() as gateway:
        body = await read_body(gateway, USER, assistant, answers("a1"), answers("b2"))
    message = body["messages"][1]
    assert message["extra_content"] == signature
    assert [given.get("extra_content") for given in message["tool_calls"]] == [signature, None]
    assert [given["id"] for given in message["tool_calls"]] == ["a1", "b2"]


@pytest.mark.parametrize(
    ("messages", "call_id"),
    [
        ([USER, asks(call("a1"))], "a1"),
        ([USER, asks(call("a1")), USER, answers("a1")], "a1"),
        ([USER, asks(call("a1"), call("b2")), answers("b2"), USER], "a1"),
        ([USER, answers("c3")], "c3"),
        ([USER, asks(call("a1")), answers("a1"), answers("a1")], "a1"),
        ([USER, asks(call("a1"), call("a1")), answers("a1")], "a1"),
    ],
)
async def test_unpaired_messages_are_refused_by_call_id_before_any_request(
    asking: Asking, messages: list[llm_pb2.Message], call_id: str
) -> None:
    async with asking() as gateway:
        result = await gateway.chat(*messages)
        assert not gateway.sim.requests
    assert result.deltas == []
    assert result.reason == "UNPAIRED_MESSAGES"
    assert result.failure.metadata == {"toolCallId": call_id}
    assert call_id in result.failure.message


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"provider_key": "nobody"}, "'nobody' is not configured; known: sim"),
        ({"model": "gpt-9"}, "'gpt-9' is not configured at 'sim'; known: sim-1, idle, bench"),
        ({"tools": [TOOL], "tool_choice": "g"}, "'g' is neither"),
    ],
)
async def test_an_invalid_request_gets_an_error_naming_the_alternatives(
    asking: Asking, fields: dict[str, Any], problem: str
) -> None:
    async with asking() as gateway:
        result = await gateway.chat(**fields)
    assert result.reason == "INVALID_REQUEST"
    assert problem in result.failure.message
