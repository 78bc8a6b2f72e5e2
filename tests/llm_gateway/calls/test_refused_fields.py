"""A field that a 400 response names is omitted from the next request, which follows at once."""

from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from headrace.v1 import common_pb2, llm_pb2
from tests.support.llm_gateway.answering import HELLO as HELLO_STREAM
from tests.support.llm_gateway.answering import HELLOS, http_answer
from tests.support.llm_gateway.conversation import SCHEMA, SYSTEM, TOOL, USER, answers, asks, call
from tests.support.llm_gateway.gateway import Asking, Gateway

HELLO: dict[str, Any] = {"steps": [{"content": ["hello"]}]}
SIGNED = {"google": {"thought_signature": "skip_thought_signature_validator"}}
WISHES: dict[str, Any] = {
    "temperature": 0.2,
    "tools": [TOOL],
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "max_tokens": 64,
    "reasoning": llm_pb2.Reasoning(enabled=True, effort="LOW"),
}


def refuse(field: str, error: dict[str, Any] | str, status: int = 400) -> dict[str, Any]:
    return {"match": {"field": field}, "steps": [{"status": status, "body": {"error": error}}]}


def openai_error(message: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    return {"message": message, "type": "invalid_request_error", "param": param, "code": code}


async def list_left_out(gateway: Gateway) -> list[str]:
    [provider] = (await gateway.llm.ListProviders(llm_pb2.ListProvidersRequest())).providers
    return [*provider.models[0].left_out]


@pytest.mark.parametrize(
    ("field", "error", "fields"),
    [
        (
            "reasoning_effort",
            openai_error("cannot specify both 'thinking' and 'reasoning_effort'"),
            {"reasoning": "thinking"},
        ),
        (
            "temperature",
            openai_error(
                "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is "
                "supported.",
                "temperature",
                "unsupported_value",
            ),
            {},
        ),
        ("temperature", openai_error("invalid temperature: only 1 is allowed for this model"), {}),
        ("parallel_tool_calls", openai_error("Unrecognized request argument supplied: parallel_tool_calls"), {}),
        (
            "reasoning_effort",
            openai_error(
                "Function tools with reasoning_effort are not supported for gpt-5.6-luna in /v1/chat/completions.",
                "reasoning_effort",
            ),
            {},
        ),
        (
            "tool_choice",
            openai_error(
                "<400> InternalError.Algo.InvalidParameter: The tool_choice parameter does not support being set to "
                "required or object in thinking mode",
                code="invalid_parameter_error",
            ),
            {"reasoning": "enable_thinking"},
        ),
        ("stream_options", openai_error("Extra inputs are not permitted", "stream_options"), {}),
        (
            "reasoning.effort",
            openai_error("Unsupported value: 'low' is not supported with this model.", "reasoning.effort"),
            {"reasoning": "reasoning"},
        ),
        (
            "tool_choice",
            {
                "type": "invalid_request_error",
                "message": 'tool_choice: type "tool" and "any" are not supported for this model.',
            },
            {"protocol": "anthropic"},
        ),
        (
            "thinking",
            {
                "type": "invalid_request_error",
                "message": '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive".',
            },
            {"protocol": "anthropic"},
        ),
        (
            "generationConfig.thinkingConfig.thinkingLevel",
            {"message": "Thinking level LOW is not supported for this model. Please retry with other thinking level."},
            {"protocol": "gemini"},
        ),
        (
            "generationConfig.thinkingConfig.thinkingLevel",
            {"message": "Unable to submit request because thinking_level LOW is not supported by this model."},
            {"protocol": "gemini"},
        ),
        (
            "toolConfig.toolChoice",
            {"message": "This model doesn't support the toolConfig.toolChoice.any field. Remove it."},
            {"protocol": "bedrock"},
        ),
        (
            "reasoning",
            openai_error("Reasoning is mandatory for this endpoint and cannot be disabled."),
            {"reasoning": "reasoning"},
        ),
        ("reasoning_effort", openai_error("`reasoning_effort` must be one of `none` or `default`"), {}),
        ("reasoning_effort", openai_error('"llama3.2:3b" does not support thinking'), {}),
        # Texts in place of none: https://github.com/BerriAI/litellm/issues/7470, 2024-12.
        (
            "parallel_tool_calls",
            openai_error("litellm.UnsupportedParamsError: x does not support: ['parallel_tool_calls']", "None"),
            {},
        ),
        (
            "enable_thinking",
            openai_error("The value of the enable_thinking parameter is restricted to False."),
            {"reasoning": "enable_thinking"},
        ),
        (
            "generationConfig.thinkingConfig",
            {"message": "Thinking is not enabled for models/gemini-2.0-flash"},
            {"protocol": "gemini"},
        ),
        (
            "tool_choice",
            {"message": "Input should be 'auto', 'none' or 'any'", "type": "enum", "loc": ["body", "tool_choice"]},
            {},
        ),
        (
            "tool_choice",
            {
                "type": "invalid_request_error",
                "message": "Thinking may not be enabled when tool_choice forces tool use.",
            },
            {"protocol": "anthropic"},
        ),
        (
            "output_config",
            {"type": "invalid_request_error", "message": "output_config: Extra inputs are not permitted"},
            {"protocol": "anthropic", "reasoning": "adaptive"},
        ),
    ],
)
async def test_a_refused_field_is_omitted_at_once_and_from_then_on(
    asking: Asking, field: str, error: dict[str, Any], fields: dict[str, Any]
) -> None:
    is_thinking = field in ("thinking", "output_config")
    wishes = WISHES | ({"tool_choice": "auto", "max_tokens": 8192} if is_thinking else {})
    async with asking([refuse(field, error), HELLO], **fields) as gateway:
        with capture_logs() as lines:
            result = await gateway.chat(**wishes)
        again = await gateway.chat(**wishes)
        assert (result.content, again.content, result.error, again.error) == (["hello"], ["hello"], None, None)
        assert [request.status for request in gateway.sim.requests] == [400, 200, 200]
        assert await list_left_out(gateway) == [field]
    [line] = [line for line in lines if line["event"] == "field left out"]
    assert (line["field"], line["log_level"], line["model"]) == (field, "warning", "sim-1")
    assert error["message"][:40] in line["said"]


CLOSED = '{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}'


@pytest.mark.parametrize(
    ("protocol", "field", "message"),
    [
        ("openai", "response_format", "This response_format type is unavailable now"),
        ("openai", "response_format", "'response_format.type' must be 'json_schema' or 'text'"),
        ("openai", "response_format", "Model sim-1 does not support parameters: response_format"),
        (
            "openai",
            "response_format",
            "response_format value as json_schema is enabled only for api versions 2024-08-01-preview and later",
        ),
        (
            "openai",
            "response_format",
            "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
        ),
        ("openai", "response_format", "json mode cannot be combined with tool/function calling"),
        ("openai", "response_format", "'response_format` json_object cannot be combined with tool/function calling"),
        ("openai", "response_format", "Cannot use custom grammar constraints with tools."),
        ("openai", "response_format", "Function calling with a response mime type: 'application/json' is unsupported"),
        ("openai", "response_format", "Unsupported JSON schema fields: {'minItems', 'items'}"),
        ("anthropic", "output_config.format", "output_config: Extra inputs are not permitted"),
        ("anthropic", "output_config.format", "output_config.format: Extra inputs are not permitted"),
        ("bedrock", "outputConfig", "This model doesn't support the outputConfig.textFormat field. Remove it."),
        ("gemini", "generationConfig.responseJsonSchema", "JSON mode is not enabled for models/gemma-3-27b-it"),
        ("gemini", "generationConfig.responseJsonSchema", 'Unknown name "responseJsonSchema": Cannot find field.'),
        ("openai_responses", "text.format", "Invalid parameter: 'text.format' of type 'json_schema' is not supported"),
    ],
)
async def test_a_refused_output_format_is_put_into_the_prompt_from_then_on(
    asking: Asking, protocol: str, field: str, message: str
) -> None:
    """DeepSeek's output format field takes no schema: https://github.com/microsoft/autogen/issues/6727,
    https://github.com/llm-exe/llm-exe/issues/662 (2026-07); Claude on Vertex AI has no field:
    https://github.com/OpenHands/software-agent-sdk/issues/1630 (2026-01)."""
    script = [refuse(field, openai_error(message)), HELLO]
    async with asking(script, protocol=protocol, models=[{"name": "sim-1"}]) as gateway:
        for _ in range(2):
            assert (await gateway.chat(output_format=common_pb2.OutputFormat(schema=CLOSED))).content == ["hello"]
        assert [request.status for request in gateway.sim.requests] == [400, 200, 200]
        assert orjson.dumps(CLOSED).decode()[1:-1] in orjson.dumps(gateway.sim.requests[-1].body).decode()
        assert await list_left_out(gateway) == ["response_format"]


async def test_a_model_of_bedrock_without_streams_and_texts_beside_calls_has_a_chat_with_tools(asking: Asking) -> None:
    """Llama and Mistral: https://github.com/n8n-io/n8n/issues/14206 (2025-03),
    https://github.com/quarkiverse/quarkus-langchain4j/issues/1983 (2025-11)."""
    refusals = [
        http_answer(400, orjson.dumps({"message": said}), Content_Type="application/json")
        for said in (
            "This model doesn't support tool use in streaming mode.",
            "messages.1.content: Conversation blocks and tool use blocks cannot be provided in the same turn.",
        )
    ]
    chat = [USER, asks(call("a"), text="I look."), answers("a"), USER]
    async with asking(answers=[*refusals, HELLOS["bedrock"]], protocol="bedrock") as gateway:
        for _ in range(2):
            assert (await gateway.chat(*chat, tools=[TOOL])).content == ["hello"]
        paths = [head.partition(b" HTTP")[0].rpartition(b"/")[2] for head in gateway.heads]
        assert paths == [b"converse-stream", b"converse", b"converse", b"converse"]
        messages = orjson.loads(gateway.heads[-1].partition(b"\r\n\r\n")[2])["messages"]
    kinds = [(turn["role"], *(kind for block in turn["content"] for kind in block)) for turn in messages]
    assert kinds == [
        ("user", "text"),
        ("assistant", "toolUse"),
        ("user", "toolResult"),
        ("assistant", "text"),
        ("user", "text"),
    ]


@pytest.mark.parametrize(
    ("protocol", "field", "said"),
    [
        ("gemini", "generationConfig.responseJsonSchema", "The schema produces a constraint that has too many states"),
        ("gemini", "generationConfig.responseJsonSchema", "Request contains an invalid argument."),
        ("anthropic", "output_config.format", "Schema is too complex for compilation."),
    ],
)
async def test_only_a_schema_that_is_too_complex_is_described_in_words(
    asking: Asking, protocol: str, field: str, said: str
) -> None:
    """https://github.com/googleapis/python-genai/issues/660 (2025-04), https://github.com/cline/cline/issues/7897
    (2025-12)."""
    other = CLOSED.replace('"a"', '"b"')
    async with asking([refuse(field, openai_error(said)), HELLO], protocol=protocol, models=[{"name": "sim-1"}]) as sim:
        for schema in (CLOSED, CLOSED, other):
            assert (await sim.chat(output_format=common_pb2.OutputFormat(schema=schema))).content == ["hello"]
        assert [request.status for request in sim.sim.requests] == [400, 200, 200, 400, 200]


@pytest.mark.parametrize("protocol", ["anthropic", "bedrock"])
@pytest.mark.parametrize(
    "said",
    [
        "Malformed input request: #/messages/6/content/0: extraneous key [cachePoint] is not permitted",
        "messages.0.content.0.cache_control: Extra inputs are not permitted",
    ],
)
async def test_a_model_that_refuses_cache_marks_has_none_from_then_on(asking: Asking, protocol: str, said: str) -> None:
    """https://github.com/earendil-works/pi/issues/2053, 2026-03."""
    refusal = http_answer(400, orjson.dumps({"message": said}), Content_Type="application/json")
    models = [{"name": "anthropic.claude-x"}]
    async with asking(
        answers=[refusal, HELLOS[protocol]], protocol=protocol, promptCache=True, models=models
    ) as gateway:
        for _ in range(2):
            assert (await gateway.chat(model="anthropic.claude-x")).content == ["hello"]
        assert [b"ephemeral" in sent or b"cachePoint" in sent for sent in gateway.heads] == [True, False, False]
        assert await list_left_out(gateway) == ["cache_control"]


@pytest.mark.parametrize("protocol", ["openai", "gemini", "bedrock"])
@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "Developer instruction is not enabled for models/gemma-3-27b-it"),
        (400, "This model doesn't support system messages. Try again without a system message."),
        (400, "Unsupported value: 'messages[0].role' does not support 'system' with this model."),
        (500, "Jinja Exception: System role not supported"),
    ],
)
async def test_instructions_that_a_model_refuses_are_the_users_from_then_on(
    asking: Asking, protocol: str, status: int, said: str
) -> None:
    """https://github.com/0xPlaygrounds/rig/issues/788 (2025-09), https://github.com/microsoft/vscode/issues/258088
    (2025-07)."""
    refusal = http_answer(status, orjson.dumps({"message": said}), Content_Type="application/json")
    async with asking(answers=[refusal, HELLOS[protocol]], protocol=protocol) as gateway:
        for _ in range(2):
            assert (await gateway.chat(SYSTEM, USER)).content == ["hello"]
        assert [rb'"be brief\n\nhello"' in sent for sent in gateway.heads] == [False, True, True]
        assert await list_left_out(gateway) == ["system"]


async def test_a_refused_schema_is_the_callers_error(asking: Asking) -> None:
    message = (
        "Invalid schema for response_format 'answer': In context=(), 'additionalProperties' is required to be false."
    )
    script = [refuse("response_format", openai_error(message, "response_format")), HELLO]
    async with asking(script, models=[{"name": "sim-1"}]) as gateway:
        result = await gateway.chat(output_format=common_pb2.OutputFormat(schema=SCHEMA))
        assert (result.reason, len(gateway.sim.requests)) == ("INVALID_REQUEST", 1)


@pytest.mark.parametrize(
    "said", ["Response input messages must contain the word 'json'", "'text.format' is not supported with this model."]
)
async def test_a_form_that_responses_refuse_is_described_in_words(asking: Asking, said: str) -> None:
    script, models = [refuse("text", openai_error(said, "input")), HELLO], [{"name": "sim-1"}]
    async with asking(script, models=models, protocol="openai_responses") as gateway:
        assert (await gateway.chat(output_format=common_pb2.OutputFormat(schema=SCHEMA))).content == ["hello"]
        assert SCHEMA in gateway.sim.requests[-1].body["instructions"]


@pytest.mark.parametrize(
    ("protocol", "name", "status", "said"),
    [
        (
            "openai",
            "function",
            400,
            "Invalid tool_choice type: 'object'. Supported string values: none, auto, required",
        ),
        ("openai", "function", 404, "No endpoints found that support the provided 'tool_choice' value."),
        ("openai_responses", "name", 400, "Invalid tool_choice type: 'object'."),
    ],
)
async def test_a_tool_whose_name_is_refused_is_forced_by_being_offered_alone(
    asking: Asking, protocol: str, name: str, status: int, said: str
) -> None:
    """https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/670 (2025-05)."""
    script = [refuse(f"tool_choice.{name}", openai_error(said), status), HELLO]
    tools = [TOOL, llm_pb2.ToolSchema(name="g")]
    async with asking(script, protocol=protocol) as gateway:
        for _ in range(2):
            assert (await gateway.chat(tools=tools, tool_choice="g")).content == ["hello"]
        gateway.sim.rules = (gateway.sim.rules[1],)
        await gateway.chat(tools=tools, tool_choice="required")
        sent = [(body["tool_choice"], len(body["tools"])) for body in bodies(gateway)[1:]]
    assert sent == [("required", 1), ("required", 1), ("required", 2)]


@pytest.mark.parametrize(
    ("field", "said", "sent"),
    [
        (
            "reasoning_content",
            "thinking is enabled but reasoning_content is missing in assistant tool call message",
            " ",
        ),
        ("reasoning_content", "The `reasoning_content` in the thinking mode must be passed back to the API.", " "),
        ("content", "AiError: Type mismatch of '/messages/1/content', 'string' not in 'null'", ""),
        ("content", "Invalid 'content': 'content' field must be a string or an array of objects.", ""),
        ("content", "invalid message content type: <nil>", ""),
        ("extra_content", "Function call is missing a thought_signature in functionCall parts.", SIGNED),
        ("extra_content", "function call `f` in the 5. content block is missing a `thought_signature`.", SIGNED),
    ],
)
async def test_a_field_that_is_missing_beside_calls_is_added_from_then_on(
    asking: Asking, field: str, said: str, sent: Any
) -> None:
    """Without it, a chat whose calls another model made would end."""
    messages = [USER, asks(call("a"), call("b")), answers("a"), answers("b"), USER]
    refusal = http_answer(400, orjson.dumps({"error": openai_error(said)}), Content_Type="application/json")
    async with asking(answers=[refusal, HELLO_STREAM]) as gateway:
        for _ in range(2):
            assert (await gateway.chat(*messages)).content == ["hello"]
        assert (len(gateway.heads), await list_left_out(gateway)) == (3, [f"messages.{field}"])
    async with asking([refuse("model", openai_error(said))]) as gateway:
        await gateway.chat(*messages)
        answer = bodies(gateway)[1]["messages"][1]
        assert (answer["tool_calls"][0] if field == "extra_content" else answer)[field] == sent
        assert field == "content" or field not in answer["tool_calls"][1]


async def test_of_two_mutually_exclusive_fields_the_second_is_omitted(asking: Asking) -> None:
    error = openai_error("`temperature` and `top_p` cannot both be specified for this model. Please use only one.")
    async with asking([refuse("top_p", error), HELLO]) as gateway:
        assert (await gateway.chat(temperature=0.2, top_p=0.5)).content == ["hello"]
        assert await list_left_out(gateway) == ["top_p"]


async def test_a_refused_fields_other_values_are_still_sent(asking: Asking) -> None:
    error = openai_error("temperature must be at most 1", "temperature", "invalid_value")
    async with asking([refuse("temperature", error), HELLO]) as gateway:
        await gateway.chat(temperature=1.5)
        gateway.sim.rules = gateway.sim.rules[1:]
        await gateway.chat(temperature=0.5)
        await gateway.chat(temperature=1.5)
        assert [request.body.get("temperature") for request in gateway.sim.requests] == [1.5, None, 0.5, None]


async def test_the_output_limit_is_sent_under_the_name_the_model_requires(asking: Asking) -> None:
    error = openai_error(
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "max_tokens",
        "unsupported_parameter",
    )
    async with asking([refuse("max_tokens", error), HELLO]) as gateway:
        await gateway.chat(max_tokens=64)
        await gateway.chat(max_tokens=65)
        sent = [(body.get("max_tokens"), body.get("max_completion_tokens")) for body in bodies(gateway)]
    assert sent == [(64, None), (None, 64), (None, 65)]


async def test_an_output_limit_mistral_refuses_is_sent_under_its_other_name(asking: Asking) -> None:
    detail = {
        "type": "extra_forbidden",
        "loc": ["body", "max_completion_tokens"],
        "msg": "Extra inputs are not permitted",
    }
    body = {"object": "error", "message": {"detail": [detail]}, "type": "invalid_request_error", "param": None}
    refusal = {"match": {"field": "max_completion_tokens"}, "steps": [{"status": 422, "body": body}]}
    async with asking([refusal, HELLO], outputLimit="max_completion_tokens") as gateway:
        assert (await gateway.chat(max_tokens=64)).content == ["hello"]
        assert bodies(gateway)[-1]["max_tokens"] == 64


def bodies(gateway: Gateway) -> list[dict[str, Any]]:
    return [request.body for request in gateway.sim.requests]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (openai_error("Invalid 'messages[0].content': unknown", "messages[0].content"), 400),
        (openai_error("max_tokens is too large: 64", "max_tokens", "invalid_value"), 400),
        (openai_error("The temperature of this room is fine."), 400),
        (openai_error("temperature is not supported", "temperature"), 404),
        (openai_error("messages.1: property 'reasoning' is unsupported"), 400),
        (openai_error("'messages[0].role' must be one of user, assistant, reasoning"), 400),
    ],
)
async def test_a_refusal_that_names_no_optional_field_is_final(
    asking: Asking, error: dict[str, Any], status: int
) -> None:
    async with asking([refuse("model", error, status), HELLO]) as gateway:
        result = await gateway.chat(**WISHES)
        assert (result.reason, len(gateway.sim.requests)) == ("INVALID_REQUEST", 1)
        assert result.failure.metadata.get("param", "") == (error["param"] or "")
        assert await list_left_out(gateway) == []


async def test_a_field_whose_omission_does_not_help_is_not_omitted_for_others(asking: Asking) -> None:
    error = openai_error("tools[0].description: 'temperature is not supported' must be shorter")
    async with asking([refuse("tools", error), HELLO]) as gateway:
        result = await gateway.chat(temperature=0.2, tools=[TOOL])
        assert (result.reason, await list_left_out(gateway)) == ("INVALID_REQUEST", [])
        assert (await gateway.chat(temperature=0.2)).content == ["hello"]
    assert [body.get("temperature") for body in bodies(gateway)] == [0.2, None, 0.2]


async def test_a_model_that_refuses_every_field_returns_its_last_error(asking: Asking) -> None:
    script = [refuse(field, openai_error("no", field)) for field in ("temperature", "tool_choice", "model")]
    async with asking(script) as gateway:
        result = await gateway.chat(**WISHES)
        assert (result.reason, result.failure.metadata["param"]) == ("INVALID_REQUEST", "model")
        assert len(gateway.sim.requests) == 3


async def test_a_refused_field_is_not_taken_for_a_full_context_window(asking: Asking) -> None:
    error = openai_error("temperature is not supported", "temperature")
    models = [{"name": "sim-1", "contextWindow": 10}]
    async with asking([refuse("temperature", error), HELLO], models=models) as gateway:
        assert (await gateway.chat(temperature=0.2)).content == ["hello"]
