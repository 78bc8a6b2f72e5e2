"""Requests to Bedrock's Converse, and which parts of an answer are sent back."""

from typing import Any

import orjson
import pytest

from headrace.v1 import common_pb2, llm_pb2
from services.simulator.protocols.signatures import sign_thinking
from tests.support.llm_gateway.conversation import SYSTEM, TOOL, USER, answers, asks, call, read_body
from tests.support.llm_gateway.gateway import Asking, text_message

BEDROCK = {"protocol": "bedrock"}
CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
HIGH = llm_pb2.Reasoning(enabled=True, effort="HIGH")
FINE = [{"steps": [{"content": "done"}]}]


def model(name: str, **fields: Any) -> dict[str, Any]:
    return BEDROCK | {"models": [{"name": name, "capabilities": ["reasoning", "json_schema"]}]} | fields


async def test_a_plain_request_has_only_the_required_fields(asking: Asking) -> None:
    async with asking(FINE, **model("arn:aws:x/y"), apiKeys=["env:SIM_KEY"]) as gateway:
        gateway.env["SIM_KEY"] = "bedrock-api-key-1"
        body = await read_body(gateway, model="arn:aws:x/y")
        request = gateway.sim.requests[-1]
    # An encoded path, as it is signed: /v1/model/arn%3Aaws%3Ax%2Fy/converse-stream.
    assert request.path == "/v1/model/arn:aws:x/y/converse-stream"
    assert request.headers["authorization"] == "Bearer bedrock-api-key-1"
    assert request.headers["accept"] == "application/vnd.amazon.eventstream"
    assert body == {"messages": [{"role": "user", "content": [{"text": "hello"}]}]}


@pytest.mark.parametrize(
    ("choice", "sent", "system"),
    [
        ("auto", None, "be brief"),
        ("none", None, "be brief\n\nAnswer without calling a tool."),
        ("required", {"any": {}}, "be brief"),
        ("f", {"tool": {"name": "f"}}, "be brief"),
    ],
)
async def test_every_option_is_sent_in_its_field(asking: Asking, choice: str, sent: Any, system: str) -> None:
    closed = '{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}'
    form = common_pb2.OutputFormat(schema=closed, name="place")
    wishes: dict[str, Any] = {"temperature": 0.5, "top_p": 0.75, "max_tokens": 5, "output_format": form}
    extra = {"inferenceConfig": {"stopSequences": ["x"]}}
    async with asking(FINE, **model("sim-1", extraBody=extra)) as gateway:
        body = await read_body(gateway, SYSTEM, USER, tools=[TOOL], tool_choice=choice, **wishes)
    assert body["system"] == [{"text": system}]
    [tool] = body["toolConfig"]["tools"]
    assert tool["toolSpec"].pop("inputSchema")["json"]["type"] == "object"
    assert tool == {"toolSpec": {"name": "f", "description": "does it"}}
    assert body["toolConfig"].get("toolChoice") == sent
    assert body["inferenceConfig"] == {"maxTokens": 5, "temperature": 0.5, "topP": 0.75, "stopSequences": ["x"]}
    schema = {"schema": closed, "name": "place"}
    assert body["outputConfig"]["textFormat"] == {"type": "json_schema", "structure": {"jsonSchema": schema}}


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        (CLAUDE, {"thinking": {"type": "enabled", "budget_tokens": 4096}}),
        (
            "us.anthropic.claude-opus-4-7",
            {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "high"}},
        ),
        ("amazon.nova-2-lite-v1:0", {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}}),
        ("openai.gpt-oss-120b-1:0", {"reasoning_effort": "high"}),
        ("meta.llama3-3-70b-instruct-v1:0", None),
    ],
)
async def test_reasoning_is_requested_in_each_models_form(asking: Asking, name: str, fields: Any) -> None:
    async with asking(FINE, **model(name)) as gateway:
        body = await read_body(gateway, model=name, reasoning=HIGH, temperature=0.5)
    assert body.get("additionalModelRequestFields") == fields
    is_claude = "claude" in name
    assert body["inferenceConfig"] == ({"maxTokens": 8192} if is_claude else {"temperature": 0.5})


async def test_a_tool_loop_sends_the_answers_blocks_back_unchanged(asking: Asking) -> None:
    script = [
        {
            "match": {"turn": 1},
            "steps": [
                {"reasoning": ["I ", "look"]},
                {"content": "Let me look."},
                {"toolCall": "f", "id": "t1", "arguments": '{"n":1}'},
            ],
        },
        *FINE,
    ]
    async with asking(script, **BEDROCK) as gateway:
        result = await gateway.chat(tools=[TOOL])
        state = next(delta.provider_state for delta in result.deltas if delta.provider_state)
        answer = asks(call("t1", '{"n":1}'), text="Let me look.", provider_state=state)
        body = await read_body(gateway, USER, answer, answers("t1"), text_message("user", "And?"), tools=[TOOL])
    thought = {"text": "I look", "signature": sign_thinking("I look")}
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][1]["content"] == [
        {"reasoningContent": {"reasoningText": thought}},
        {"text": "Let me look."},
        {"toolUse": {"toolUseId": "t1", "name": "f", "input": {"n": 1}}},
    ]
    assert body["messages"][2]["content"] == [
        {"toolResult": {"toolUseId": "t1", "content": [{"text": "done"}]}},
        {"text": "And?"},
    ]


async def test_reasoning_without_a_signature_is_not_sent_back(asking: Asking) -> None:
    """Kimi, GLM and DeepSeek think, but refuse `reasoningContent` in a request:
    https://github.com/earendil-works/pi/pull/1505, 2026-02."""
    blocks = [{"reasoningContent": {"reasoningText": {"text": "Hm"}}}, {"chars": 3}, {"call": True}]
    state = orjson.dumps({"provider": "sim", "content_blocks": blocks}).decode()
    async with asking(FINE, **BEDROCK) as gateway:
        body = await read_body(gateway, USER, asks(call("a"), text="So.", provider_state=state), answers("a"))
    assert [[*block] for block in body["messages"][1]["content"]] == [["text"], ["toolUse"]]


async def test_claude_receives_only_one_of_temperature_and_top_p(asking: Asking) -> None:
    """https://github.com/mem0ai/mem0/issues/3891, 2026-01."""
    async with asking(FINE, **model(CLAUDE)) as gateway:
        body = await read_body(gateway, model=CLAUDE, temperature=1.5, top_p=0.75)
    assert body["inferenceConfig"] == {"temperature": 1.0}, "its greatest"


async def test_another_models_calls_are_converted_and_their_tools_declared(asking: Asking) -> None:
    foreign = orjson.dumps({"provider": "other", "content_blocks": [{"call": True}]}).decode()
    conversation = [USER, asks(call("a", "[1]"), provider_state=foreign), answers("a", "")]
    async with asking(FINE, **model(CLAUDE)) as gateway:
        body = await read_body(gateway, *conversation, model=CLAUDE, reasoning=HIGH, max_tokens=4096)
    assert body["messages"][1]["content"] == [{"toolUse": {"toolUseId": "a", "name": "f", "input": {}}}]
    [tool] = body["toolConfig"]["tools"]
    assert tool["toolSpec"]["name"] == "f"
    assert "additionalModelRequestFields" not in body, "thoughts before these calls would be missing"


async def test_instructions_and_conversation_end_with_cache_points(asking: Asking) -> None:
    point = {"cachePoint": {"type": "default"}}
    for name, marks in ((CLAUDE, [point]), ("meta.llama3-3-70b-instruct-v1:0", [])):
        async with asking(FINE, **model(name), promptCache=True) as gateway:
            body = await read_body(gateway, SYSTEM, USER, model=name)
        assert body["system"][1:] == body["messages"][0]["content"][1:] == marks


async def test_images_and_documents_are_sent_as_blocks(asking: Asking) -> None:
    image = llm_pb2.ContentPart(image=llm_pb2.ImagePart(data=b"jpg", mime_type="image/jpg"))
    report = llm_pb2.ContentPart(file=llm_pb2.FilePart(data=b"pdf", mime_type="application/pdf", name="my_r.v2.pdf"))
    result = answers("a", "seen")
    result.content.append(image)
    user = llm_pb2.Message(role="user", content=[report])
    async with asking(FINE, **BEDROCK | {"models": [{"name": "sim-1"}]}) as gateway:
        body = await read_body(gateway, USER, asks(call("a")), result, user, tools=[TOOL])
    tool_result, document, name_text = body["messages"][2]["content"]
    assert tool_result["toolResult"]["content"] == [
        {"text": "seen"},
        {"image": {"format": "jpeg", "source": {"bytes": "anBn"}}},
    ]
    assert document == {"document": {"format": "pdf", "name": "my r v2", "source": {"bytes": "cGRm"}}}
    assert name_text == {"text": "my r v2"}


@pytest.mark.parametrize(
    ("status", "kind", "message", "reason"),
    [
        (429, "ThrottlingException", "Too many requests", "RATE_LIMITED"),
        (400, "ValidationException:http://x", "Input is too long for requested model.", "CONTEXT_LENGTH_EXCEEDED"),
        (403, "ExpiredTokenException", "The security token is expired", "PROVIDER_AUTHENTICATION"),
        (424, "ModelErrorException", "The model broke", "PROVIDER_UNAVAILABLE"),
    ],
)
async def test_errors_in_awss_format_are_classified(
    asking: Asking, status: int, kind: str, message: str, reason: str
) -> None:
    refusal = {"status": status, "headers": {"x-amzn-ErrorType": kind}, "body": {"message": message}}
    async with asking([{"steps": [refusal]}], **BEDROCK) as gateway:
        result = await gateway.chat()
    assert result.reason == reason
    assert message in result.failure.message
