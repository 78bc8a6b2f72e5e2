"""Protocol `anthropic` with the simulator, which checks pairs, thinking and signatures as Anthropic does.

Tested are the request, what is sent back in a tool loop, and the classification of refusals.
"""

from typing import Any

import orjson
import pytest

from headrace.v1 import llm_pb2
from tests.support.llm_gateway.conversation import (
    SCHEMA,
    SYSTEM,
    TOOL,
    USER,
    answers,
    asks,
    call,
    choose_timeouts,
    read_body,
)
from tests.support.llm_gateway.gateway import Asking, ChatResult, text_message

HIGH = llm_pb2.Reasoning(enabled=True, effort="HIGH")


def list_content_kinds(result: ChatResult) -> list[str]:
    return [kind for kind in result.kinds if kind not in ("started", "usage", "finish")]


async def test_a_plain_request_has_only_the_required_fields(asking: Asking) -> None:
    async with asking(protocol="anthropic", apiKeys=["env:SIM_KEY"]) as gateway:
        gateway.env["SIM_KEY"] = "sk-ant-12345678"
        body = await read_body(gateway)
        request = gateway.sim.requests[-1]
    assert request.path == "/v1/messages"
    assert request.headers["x-api-key"] == "sk-ant-12345678"
    assert request.headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in request.headers
    assert body == {
        "model": "sim-1",
        "max_tokens": 8192,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
        "stream": True,
    }


MARK = {"cache_control": {"type": "ephemeral"}}


def find_marks(body: Any) -> list[tuple[str, int, int]]:
    """Return the places of cache marks: field, turn and block."""
    system = [("system", 0, at) for at, block in enumerate(body.get("system", [])) if "cache_control" in block]
    tools = [("tools", 0, at) for at, tool in enumerate(body.get("tools", [])) if "cache_control" in tool]
    blocks = [
        ("messages", turn, at)
        for turn, message in enumerate(body["messages"])
        for at, block in enumerate(message["content"])
        if "cache_control" in block
    ]
    return system + tools + blocks


async def test_content_the_next_request_repeats_is_marked_for_the_cache(asking: Asking) -> None:
    other = llm_pb2.ToolSchema(name="g", description="does more")
    loop = [USER, asks(call("a"), call("b")), answers("a"), answers("b")]
    async with asking(protocol="anthropic", promptCache=True) as gateway:
        first = await read_body(gateway, USER)
        instructed = await read_body(gateway, SYSTEM, *loop, tools=[TOOL, other])
        bare = await read_body(gateway, *loop, text_message("assistant", "so"), USER, tools=[TOOL, other])
    assert first["messages"][0]["content"] == [{"type": "text", "text": "hello"} | MARK]
    assert instructed["system"] == [{"type": "text", "text": "be brief"} | MARK]
    assert find_marks(instructed) == [("system", 0, 0), ("tools", 0, 1), ("messages", 0, 0), ("messages", 2, 1)]
    assert find_marks(bare) == [("tools", 0, 1), ("messages", 0, 0), ("messages", 2, 1), ("messages", 4, 0)]


async def test_a_tool_loop_sends_thinking_back_with_its_signatures(asking: Asking) -> None:
    script = [
        {"match": {"turn": 1}, "steps": [{"reasoning": ["I ", "look"]}, {"toolCall": "f", "id": "toolu_1"}]},
        {"steps": [{"content": "done"}]},
    ]
    fields: dict[str, Any] = {"tools": [TOOL], "reasoning": HIGH, "max_tokens": 4096}
    async with asking(script, protocol="anthropic") as gateway:
        result = await gateway.chat(**fields)
        state = next(delta.provider_state for delta in result.deltas if delta.provider_state)
        assistant = asks(call("toolu_1"), text="Let me look.", provider_state=state)
        body = await read_body(gateway, USER, assistant, answers("toolu_1"), **fields)
        assert [block["type"] for block in body["messages"][1]["content"]] == ["thinking", "text", "tool_use"]
        assert body["messages"][1]["content"][0]["thinking"] == "I look"
        assert body["thinking"] == {"type": "enabled", "budget_tokens": 2048}


async def test_thinking_is_disabled_when_a_loops_thinking_blocks_are_missing(asking: Asking) -> None:
    """This happens after a failover: the blocks are another provider's, and Anthropic refuses thinking without them."""
    foreign = orjson.dumps({"provider": "other", "thinking_blocks": [{"type": "thinking", "thinking": "x"}]}).decode()
    conversation = [USER, asks(call("a"), provider_state=foreign), answers("a")]
    async with asking(protocol="anthropic") as gateway:
        body = await read_body(gateway, *conversation, tools=[TOOL], reasoning=HIGH)
        assert "thinking" not in body
        assert [block["type"] for block in body["messages"][1]["content"]] == ["tool_use"]
        body = await read_body(
            gateway, *conversation, text_message("assistant", "so"), USER, tools=[TOOL], reasoning=HIGH
        )
        assert body["thinking"] == {"type": "enabled", "budget_tokens": 4096}


async def test_thinking_comes_first_in_a_turn_of_several_messages(asking: Asking) -> None:
    async with asking([{"steps": [{"reasoning": "hm"}, {"content": "x"}]}], protocol="anthropic") as gateway:
        result = await gateway.chat()
        state = next(delta.provider_state for delta in result.deltas if delta.provider_state)
        first_message = text_message("assistant", "I look.")
        body = await read_body(
            gateway, USER, first_message, asks(call("a"), provider_state=state), answers("a"), tools=[TOOL]
        )
    assert [block["type"] for block in body["messages"][1]["content"]] == ["thinking", "text", "tool_use"]


async def test_tool_results_share_a_message_with_the_users_next_text(asking: Asking) -> None:
    cut = asks(call("a", '{"n": 1.10}'), call("b", '{"cut": '), text="Let me look.")
    messages = [SYSTEM, USER, cut, answers("a"), answers("b", ""), text_message("user", "and?"), SYSTEM]
    async with asking(protocol="anthropic") as gateway:
        body = await read_body(gateway, *messages, tools=[TOOL])
    assert body["system"] == "be brief\n\nbe brief"
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][1]["content"] == [
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "a", "name": "f", "input": {"n": 1.10}},
        {"type": "tool_use", "id": "b", "name": "f", "input": {}},
    ]
    assert body["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": "done"},
        {"type": "tool_result", "tool_use_id": "b", "content": "(empty)"},
        {"type": "text", "text": "and?"},
    ]


async def test_images_and_adjacent_text_are_converted(asking: Asking) -> None:
    images = [
        llm_pb2.ImagePart(data=b"png", mime_type="image/png", detail="low"),
        llm_pb2.ImagePart(url="data:image/jpeg;base64,anBn"),
        llm_pb2.ImagePart(url="https://example.org/x.png"),
    ]
    parts = [llm_pb2.ContentPart(text="what is this?"), *[llm_pb2.ContentPart(image=image) for image in images]]
    shot = answers("a")
    shot.content.append(parts[1])
    async with asking(protocol="anthropic") as gateway:
        body = await read_body(
            gateway, llm_pb2.Message(role="user", content=parts), asks(call("a")), shot, tools=[TOOL]
        )
    png = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "cG5n"}}
    assert body["messages"][0]["content"] == [
        {"type": "text", "text": "what is this?"},
        png,
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "anBn"}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/x.png"}},
    ]
    assert body["messages"][2]["content"][0]["content"] == [{"type": "text", "text": "done"}, png]


@pytest.mark.parametrize(
    ("choice", "parallel", "expected"),
    [
        ("", None, None),
        ("auto", None, {"type": "auto"}),
        ("required", False, {"type": "any", "disable_parallel_tool_use": True}),
        ("none", False, {"type": "none"}),
        ("f", None, {"type": "tool", "name": "f"}),
        ("", False, {"type": "auto", "disable_parallel_tool_use": True}),
        ("", True, {"type": "auto", "disable_parallel_tool_use": False}),
    ],
)
async def test_a_tool_choice_is_converted_to_anthropics_form(
    asking: Asking, choice: str, parallel: bool | None, expected: dict[str, Any] | None
) -> None:
    async with asking(protocol="anthropic") as gateway:
        body = await read_body(gateway, tools=[TOOL], tool_choice=choice, parallel_tool_calls=parallel)
        assert body.get("tool_choice") == expected
        assert body["tools"][0]["input_schema"] == orjson.loads(SCHEMA)
        result = await gateway.chat(tools=[TOOL], tool_choice="g")
    assert result.reason == "INVALID_REQUEST"


@pytest.mark.parametrize(
    ("form", "fields", "expected"),
    [
        (
            "thinking",
            {"reasoning": HIGH, "max_tokens": 40_000},
            {"thinking": {"type": "enabled", "budget_tokens": 16384}},
        ),
        (
            "thinking",
            {"reasoning": llm_pb2.Reasoning(enabled=True)},
            {"thinking": {"type": "enabled", "budget_tokens": 4096}},
        ),
        ("thinking", {"reasoning": HIGH, "max_tokens": 2000}, {}),
        ("thinking", {"reasoning": llm_pb2.Reasoning()}, {}),
        ("thinking", {"reasoning": HIGH, "tools": [TOOL], "tool_choice": "required"}, {}),
        ("thinking", {"reasoning": HIGH, "model": "bench-1x0ms"}, {}),
        ("thinking", {"temperature": 1.5, "top_p": 0.5}, {"temperature": 1.0}),
        ("thinking", {"top_p": 0.5}, {"top_p": 0.5}),
        (
            "thinking",
            {"reasoning": HIGH, "max_tokens": 4096, "temperature": 0.2, "top_p": 0.99},
            {"thinking": {"type": "enabled", "budget_tokens": 2048}, "top_p": 0.99},
        ),
        (
            "adaptive",
            {"reasoning": HIGH},
            {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "high"}},
        ),
        ("adaptive", {"reasoning": llm_pb2.Reasoning()}, {"thinking": {"type": "disabled"}}),
    ],
)
async def test_thinking_and_sampling_fields_are_made_compatible(
    asking: Asking, form: str, fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    async with asking(protocol="anthropic", reasoning=form) as gateway:
        body = await read_body(gateway, **fields)
    names = ("thinking", "output_config", "temperature", "top_p")
    assert {name: body[name] for name in names if name in body} == expected


@pytest.mark.parametrize(
    ("steps", "kinds", "reason"),
    [
        ([{"status": 401}], [], "PROVIDER_AUTHENTICATION"),
        ([{"status": 400}], [], "INVALID_REQUEST"),
        ([{"status": 429, "headers": {"Retry-After": "7"}}], [], "RATE_LIMITED"),
        ([{"status": 500}], [], "PROVIDER_UNAVAILABLE"),
        ([{"status": 529}], [], "OVERLOADED"),
        ([{"stall": True}], [], "STREAM_STALLED"),
        ([{"content": "a"}, {"stall": True}], ["content"], "STREAM_STALLED"),
        ([{"content": "a"}, {"cut": True}], ["content"], "PROVIDER_UNAVAILABLE"),
        ([{"content": "a"}, {"end": True}], ["content"], "PROVIDER_UNAVAILABLE"),
        ([{"content": "a"}, {"raw": 'event: x\ndata: {"delta":{"text":\n\n'}], ["content"], "BAD_FRAME"),
        ([{"content": "a"}, {"raw": "x" * ((1 << 20) + 1)}], ["content"], "BAD_FRAME"),
        ([{"finish": "length"}], [], "CONTEXT_LENGTH_EXCEEDED"),
    ],
)
async def test_every_kind_of_failure_has_a_typed_error(
    asking: Asking, steps: list[Any], kinds: list[str], reason: str
) -> None:
    async with asking([{"steps": steps}], protocol="anthropic", **choose_timeouts(reason)) as gateway:
        result = await gateway.chat()
        await gateway.sim.until_idle()
    assert list_content_kinds(result) == kinds
    assert result.reason == reason
    if reason == "RATE_LIMITED":
        assert result.failure.retry_after_s == 7.0


async def test_a_too_long_prompt_reports_both_token_counts(asking: Asking) -> None:
    error = {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"}
    step = {"status": 400, "body": {"type": "error", "error": error}}
    async with asking([{"steps": [step]}], protocol="anthropic") as gateway:
        result = await gateway.chat()
    assert result.reason == "CONTEXT_LENGTH_EXCEEDED"
    assert (result.failure.metadata["currentTokens"], result.failure.metadata["maxTokens"]) == ("210000", "200000")
