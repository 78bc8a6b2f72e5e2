"""Requests to Gemini, and which parts of an answer are sent back."""

from typing import Any

import orjson
import pytest

from headrace.v1 import common_pb2, llm_pb2
from services.simulator.protocols.signatures import sign_thinking
from tests.support.llm_gateway.conversation import SYSTEM, TOOL, USER, answers, asks, call, read_body
from tests.support.llm_gateway.gateway import Asking, text_message

GEMINI = {"protocol": "gemini"}
LOW = llm_pb2.Reasoning(enabled=True, effort="LOW")
FORM = common_pb2.OutputFormat(schema='{"type":"object"}')


def models(*names: str) -> dict[str, Any]:
    return GEMINI | {"models": [{"name": name, "capabilities": ["reasoning", "json_schema"]} for name in names]}


async def test_a_plain_request_has_only_the_required_fields(asking: Asking) -> None:
    async with asking(**GEMINI, apiKeys=["env:SIM_KEY"]) as gateway:
        gateway.env["SIM_KEY"] = "AIza-12345678"
        body = await read_body(gateway)
        request = gateway.sim.requests[-1]
    assert (request.path, request.headers["x-goog-api-key"]) == (
        "/v1/models/sim-1:streamGenerateContent",
        "AIza-12345678",
    )
    assert body == {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}


@pytest.mark.parametrize(
    ("choice", "sent"),
    [("none", {"mode": "NONE"}), ("required", {"mode": "ANY"}), ("f", {"mode": "ANY", "allowedFunctionNames": ["f"]})],
)
async def test_every_option_is_sent_in_its_field(asking: Asking, choice: str, sent: Any) -> None:
    wishes: dict[str, Any] = {"temperature": 0.5, "top_p": 0.75, "max_tokens": 5}
    extra = {"extraBody": {"generationConfig": {"topK": 3}, "safetySettings": []}}
    async with asking(**GEMINI, **extra) as gateway:
        body = await read_body(gateway, SYSTEM, USER, tools=[TOOL], tool_choice=choice, **wishes)
    assert body["systemInstruction"] == {"parts": [{"text": "be brief"}]}
    [declared] = body["tools"][0]["functionDeclarations"]
    assert declared.pop("parametersJsonSchema")["type"] == "object"
    assert declared == {"name": "f", "description": "does it"}
    assert body["toolConfig"] == {"functionCallingConfig": sent}
    config = {"temperature": 0.5, "topP": 0.75, "maxOutputTokens": 5, "topK": 3}
    assert body["generationConfig"] == config
    assert body["safetySettings"] == []


@pytest.mark.parametrize(
    ("model", "wish", "config"),
    [
        ("gemini-3.1-pro", {"reasoning": LOW}, {"thinkingConfig": {"includeThoughts": True, "thinkingLevel": "low"}}),
        ("gemini-2.5-pro", {"reasoning": LOW}, {"thinkingConfig": {"includeThoughts": True, "thinkingBudget": 1024}}),
        ("gemini-2.5-flash", {"reasoning": llm_pb2.Reasoning()}, {"thinkingConfig": {"thinkingBudget": 0}}),
        ("gemini-3.1-pro", {"reasoning": llm_pb2.Reasoning()}, None),
        (
            "gemini-3.1-pro",
            {"output_format": FORM, "tools": [TOOL]},
            {"responseMimeType": "application/json", "responseJsonSchema": {"type": "object"}},
        ),
        ("gemini-2.5-pro", {"output_format": FORM, "tools": [TOOL]}, None),
    ],
)
async def test_reasoning_is_requested_in_each_model_generations_form(
    asking: Asking, model: str, wish: dict[str, Any], config: Any
) -> None:
    async with asking(**models(model)) as gateway:
        body = await read_body(gateway, model=model, **wish)
    assert body.get("generationConfig") == config


async def test_a_tool_loop_sends_each_part_back_with_its_signature(asking: Asking) -> None:
    script = [
        {
            "match": {"turn": 1},
            "steps": [
                {"reasoning": "Hm"},
                {"content": "I look."},
                {"toolCall": "f", "id": "c1", "arguments": '{"n":1.10}'},
                {"toolCall": "f", "id": "c2", "index": 1},
            ],
        },
        {"steps": [{"content": "done"}]},
    ]
    async with asking(script, **GEMINI) as gateway:
        result = await gateway.chat(tools=[TOOL])
        assert [(called.id, called.arguments) for called in result.calls] == [("c1", '{"n":1.1}'), ("c2", "{}")]
        state = next(delta.provider_state for delta in result.deltas if delta.provider_state)
        answer = asks(call("c1", '{"n":1.1}'), call("c2"), text="I look.", provider_state=state)
        body = await read_body(gateway, USER, answer, answers("c1", "one"), answers("c2", "two"), USER, tools=[TOOL])
    assert [content["role"] for content in body["contents"]] == ["user", "model", "user", "user"]
    assert body["contents"][1]["parts"] == [
        {"text": "I look."},
        {"functionCall": {"name": "f", "args": {"n": 1.1}, "id": "c1"}, "thoughtSignature": sign_thinking("")},
        {"functionCall": {"name": "f", "args": {}, "id": "c2"}},
    ]
    assert body["contents"][2]["parts"] == [
        {"functionResponse": {"name": "f", "response": {"output": "one"}, "id": "c1"}},
        {"functionResponse": {"name": "f", "response": {"output": "two"}, "id": "c2"}},
    ]


@pytest.mark.parametrize(
    ("model", "signature"),
    [("gemini-3-flash", {"thoughtSignature": "skip_thought_signature_validator"}), ("gemini-2.5-flash", {})],
)
async def test_another_models_calls_have_no_ids_and_a_placeholder_signature(
    asking: Asking, model: str, signature: dict[str, str]
) -> None:
    foreign = orjson.dumps({"provider": "other", "parts": [{"call": True, "id": "x"}]}).decode()
    answer = asks(call("a", "[1]"), call("b", '{"cut'), provider_state=foreign)
    async with asking([{"steps": [{"content": "x"}]}], **models(model)) as gateway:
        await gateway.chat(USER, answer, answers("a"), answers("b"), tools=[TOOL], model=model)
        parts = gateway.sim.requests[-1].body["contents"][1]["parts"]
    called = {"functionCall": {"name": "f", "args": {}}}
    assert parts == [called | signature, called]


async def test_a_result_without_a_name_gets_its_calls_name(asking: Asking) -> None:
    """OpenAI's clients omit it: https://github.com/openclaw/openclaw/issues/47857, 2026-03."""
    result = text_message("tool", "done", tool_call_id="a")
    async with asking(**GEMINI) as gateway:
        body = await read_body(gateway, text_message("user", ""), USER, asks(call("a")), result, tools=[TOOL])
    assert body["contents"][0]["parts"] == [{"text": "hello"}]
    assert body["contents"][-1]["parts"][0]["functionResponse"]["name"] == "f"


async def test_images_audio_and_files_are_sent_as_parts(asking: Asking) -> None:
    image = llm_pb2.ContentPart(image=llm_pb2.ImagePart(data=b"png", mime_type="image/png"))
    far = llm_pb2.ContentPart(image=llm_pb2.ImagePart(url="https://x.org/a.png"))
    sound = llm_pb2.ContentPart(audio=llm_pb2.AudioPart(data=b"mp3", mime_type="audio/mpeg"))
    report = llm_pb2.ContentPart(file=llm_pb2.FilePart(data=b"pdf", mime_type="application/pdf", name="a.pdf"))
    result = answers("a", "seen")
    result.content.append(image)
    user = llm_pb2.Message(role="user", content=[far, sound, report])
    async with asking(**GEMINI | {"models": [{"name": "sim-1"}]}) as gateway:
        body = await read_body(gateway, USER, asks(call("a")), result, user, tools=[TOOL])
    assert body["contents"][2]["parts"] == [{"functionResponse": {"name": "f", "response": {"output": "seen"}}}]
    assert body["contents"][3]["parts"] == [
        {"text": "[in the result of f]"},
        {"inlineData": {"mimeType": "image/png", "data": "cG5n"}},
        {"fileData": {"mimeType": "image/*", "fileUri": "https://x.org/a.png"}},
        {"inlineData": {"mimeType": "audio/mpeg", "data": "bXAz"}},
        {"inlineData": {"mimeType": "application/pdf", "data": "cGRm"}},
    ]


async def test_a_tool_name_is_prefixed_with_a_letter_and_restored_in_the_answer(asking: Asking) -> None:
    script = [{"steps": [{"toolCall": "_3d", "id": "c"}]}]
    async with asking(script, **GEMINI) as gateway:
        result = await gateway.chat(tools=[llm_pb2.ToolSchema(name="3d")])
    assert [called.name for called in result.calls] == ["3d"]


async def test_errors_in_googles_format_are_classified(asking: Asking) -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7.5s"}]
    error = {"error": {"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED", "details": details}}
    async with asking([{"steps": [{"status": 429, "body": [error]}]}], **GEMINI) as gateway:
        result = await gateway.chat()
    assert (result.reason, result.failure.retry_after_s) == ("RATE_LIMITED", 7.5)


async def test_a_refused_setting_is_omitted(asking: Asking) -> None:
    violation = {"field": "generation_config.thinking_config", "description": "Cannot find field."}
    error = {"code": 400, "message": "Invalid JSON payload received.", "details": [{"fieldViolations": [violation]}]}
    field = "generationConfig.thinkingConfig"
    refused = {"match": {"field": field}, "steps": [{"status": 400, "body": {"error": error}}]}
    async with asking([refused, {"steps": [{"content": "x"}]}], **GEMINI) as gateway:
        assert (await gateway.chat(reasoning=LOW, max_tokens=5)).content == ["x"]
        assert gateway.sim.requests[-1].body["generationConfig"] == {"maxOutputTokens": 5}


async def test_a_call_follows_no_other_content_of_the_model(asking: Asking) -> None:
    """It must come "immediately after a user turn or after a function response turn":
    https://github.com/google-gemini/gemini-cli/issues/26486 (2026-05)."""
    state = orjson.dumps({"provider": "sim", "parts": [{"chars": 2, "thoughtSignature": sign_thinking("")}]}).decode()
    said = text_message("assistant", "So", provider_state=state)
    async with asking([{"steps": [{"content": "done"}]}], **GEMINI) as gateway:
        body = await read_body(gateway, USER, said, asks(call("a")), answers("a"), tools=[TOOL])
    assert [content["role"] for content in body["contents"]] == ["user", "model", "user"]
    assert [next(iter(part)) for part in body["contents"][1]["parts"]] == ["thoughtSignature", "functionCall"]


@pytest.mark.parametrize(("model", "is_signed"), [("gemini-3-pro-image-preview", True), ("gemini-3.1-pro", False)])
async def test_a_model_that_makes_pictures_has_no_part_without_a_signature(
    asking: Asking, model: str, is_signed: bool
) -> None:
    """Each is refused: https://github.com/googleapis/js-genai/issues/1116 (2025-11),
    https://github.com/lobehub/lobehub/issues/10404."""
    async with asking([{"steps": [{"content": "done"}]}], **models(model)) as gateway:
        body = await read_body(gateway, USER, text_message("assistant", "Here."), USER, model=model)
    signature = {"thoughtSignature": "skip_thought_signature_validator"} if is_signed else {}
    assert body["contents"][1]["parts"] == [{"text": "Here."} | signature]
    assert body["contents"][2]["parts"] == [{"text": "hello"}]
