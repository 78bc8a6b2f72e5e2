"""Conversations adapted to what their provider accepts."""

import json
from typing import Any

import orjson
import pytest

from headrace.v1 import llm_pb2
from services.llm_gateway.protocols.registry import PROTOCOLS
from services.simulator.protocols.signatures import sign_thinking
from tests.support.llm_gateway.answering import HELLO, http_answer
from tests.support.llm_gateway.conversation import SYSTEM, TOOL, USER, answers, asks, call, read_body
from tests.support.llm_gateway.gateway import Asking, text_message

IMAGE = llm_pb2.ContentPart(image=llm_pb2.ImagePart(data=b"png", mime_type="image/png"))


def make_named_call(call_id: str, name: str) -> tuple[llm_pb2.Message, llm_pb2.Message]:
    result = text_message("tool", "done", tool_call_id=call_id, name=name)
    return asks(llm_pb2.ToolCall(id=call_id, name=name, arguments="{}")), result


def make_image_result(call_id: str) -> llm_pb2.Message:
    result = answers(call_id)
    result.content.append(IMAGE)
    return result


@pytest.mark.parametrize(
    ("messages", "roles"),
    [
        ([USER, USER], ["user"]),
        ([USER, text_message("assistant", "a"), text_message("assistant", "b"), USER], ["user", "assistant", "user"]),
        ([USER, llm_pb2.Message(role="assistant"), USER], ["user"]),
        ([text_message("assistant", "a"), USER], ["user", "assistant", "user"]),
        ([USER, asks(call("a")), answers("a"), USER], ["user", "assistant", "tool", "assistant", "user"]),
        ([USER, asks(call("a")), make_image_result("a")], ["user", "assistant", "tool", "assistant", "user"]),
        ([USER, text_message("assistant", "a")], ["user", "assistant", "user"]),
    ],
)
async def test_roles_alternate_for_a_strict_provider(
    asking: Asking, messages: list[llm_pb2.Message], roles: list[str]
) -> None:
    async with asking(turnOrder="strict") as gateway:
        body = await read_body(gateway, *messages)
    assert [message["role"] for message in body["messages"]] == roles


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_adjacent_texts_are_separated_by_a_blank_line(asking: Asking, protocol: str) -> None:
    user = text_message("user", '{"a":1}')
    user.content.add(text="[File: b.json]")
    result = answers("a", "sun")
    result.content.add(text="and wind")
    async with asking(protocol=protocol) as gateway:
        body = await read_body(gateway, user, text_message("user", "Well?"), asks(call("a")), result, tools=[TOOL])
    messages_text = orjson.dumps(body["messages"]).decode()
    assert r"{\"a\":1}\n\n[File: b.json]\n\nWell?" in messages_text
    assert r"sun\n\nand wind" in messages_text
    if protocol == "openai":
        assert body["messages"][1]["content"] is None, "some gateways make a word of an empty text"


@pytest.mark.parametrize(
    ("name", "sent"), [("browser.tabs.open", "browser_tabs_open"), ("", "_"), ("é", "_"), ("f" * 70, f"{'f' * 55}_")]
)
@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_an_invented_tool_name_is_sent_in_a_valid_form(
    asking: Asking, name: str, sent: str, protocol: str
) -> None:
    async with asking(protocol=protocol) as gateway:
        body = await read_body(gateway, USER, *make_named_call("a", name), tools=[TOOL])
    [found] = [
        called.get("name") or called["function"]["name"]
        for called in (body["messages"][1].get("tool_calls") or body["messages"][1]["content"])
    ]
    assert found.startswith(sent)
    assert len(found) == (64 if len(name) > 64 else len(sent))


async def test_tools_are_sent_under_unique_names_and_returned_under_their_own(asking: Asking) -> None:
    tools = [llm_pb2.ToolSchema(name=name) for name in ("web.search", "web_search", "web search")]
    async with asking([{"steps": [{"toolCall": "web_search", "id": "c1", "arguments": ["{}"]}]}]) as gateway:
        result = await gateway.chat(tools=tools, tool_choice="web_search")
        names = [tool["function"]["name"] for tool in gateway.sim.requests[-1].body["tools"]]
        assert names[1] == "web_search"
        assert len({*names}) == 3
        assert gateway.sim.requests[-1].body["tool_choice"]["function"]["name"] == "web_search"
    assert result.calls[0].name == "web_search"
    async with asking([{"steps": [{"toolCall": "web_search", "id": "c1", "arguments": ["{}"]}]}]) as gateway:
        result = await gateway.chat(tools=tools[:1])
    assert result.calls[0].name == "web.search", "its own name is another"


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
@pytest.mark.parametrize("given", ["c" * 53, "functions.f:0", "ö"])
async def test_another_providers_call_id_is_converted_consistently_with_its_result(
    asking: Asking, given: str, protocol: str
) -> None:
    async with asking(protocol=protocol) as gateway:
        body = await read_body(gateway, USER, *make_named_call(given, "f"), tools=[TOOL])
    called, result = body["messages"][1:]
    if protocol == "openai":
        ids = {called["tool_calls"][0]["id"], result["tool_call_id"]}
    else:
        ids = {called["content"][0]["id"], result["content"][0]["tool_use_id"]}
    [found] = ids
    assert len(found) <= 40
    assert found.isascii()


async def test_kimi_receives_call_ids_in_its_trained_form(asking: Asking) -> None:
    """With other ids it soon writes its calls into the text, or nothing: https://github.com/vllm-project/vllm/issues/29596
    (2025-11), https://github.com/getkimchi/kimchi/pull/1066 (2026-08)."""
    calls = [call("functions.f:0"), call("call_8hQ1")]
    messages = [
        USER,
        asks(*calls),
        answers("functions.f:0"),
        answers("call_8hQ1"),
        *make_named_call("toolu_1", "web.search"),
    ]
    async with asking(models=[{"name": "moonshotai/Kimi-K2.5"}]) as gateway:
        body = await read_body(gateway, *messages, model="moonshotai/Kimi-K2.5", tools=[TOOL])
    call_ids = [item["id"] for message in body["messages"] for item in message.get("tool_calls") or ()]
    answered = [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]
    assert call_ids == answered == ["functions.f:0", "functions.f:1", "functions.web_search:2"]


NO_ARGUMENTS = {"type": "object", "properties": {}}
A: dict[str, Any] = {"properties": {"a": {"type": "string"}}, "required": ["a"]}
B: dict[str, Any] = {"properties": {"b": True}, "required": ["b"]}
BOTH: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}, "b": {}}}
DEFINED = {"A": A | {"type": "object"}}


def make_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("given", "sent", "lost"),
    [
        ("", NO_ARGUMENTS, ""),
        (True, NO_ARGUMENTS, ""),
        ({"type": "object"}, NO_ARGUMENTS, ""),
        ({"type": ["object", "null"]}, NO_ARGUMENTS, ""),
        ({"type": "string"}, NO_ARGUMENTS, "string"),
        ({"anyOf": [A, B]}, BOTH, "anyOf"),
        ({"allOf": [A, B]}, BOTH | {"required": ["a", "b"]}, "allOf"),
        ({"$ref": "#/$defs/A", "$defs": DEFINED}, A | {"type": "object", "$defs": DEFINED}, ""),
        (make_object(a={"type": "array"}), make_object(a={"type": "array", "items": {}}), ""),
        (make_object(a={"items": [{}, True]}), make_object(a={"prefixItems": [{}, {}]}), ""),
        (make_object(a={"type": "any", "required": True}), make_object(a={}), ""),
        ({"type": "any"} | {"properties": BOTH["properties"], "oneOf": True}, BOTH, ""),
        ({"properties": None, "required": False, "type": None}, NO_ARGUMENTS, ""),
        (make_object(b=True) | {"required": ["c"]}, make_object(c={}, b={}) | {"required": ["c"]}, ""),
        # Draft 4, OpenAPI and mistakes of MCP servers: https://github.com/Dokploy/mcp/issues/74 and
        # https://github.com/kestra-io/kestra/pull/17075, 2026.
        (make_object(a={"exclusiveMinimum": True, "minimum": 0}), make_object(a={"minimum": 0}), ""),
        (make_object(a={"minimum": "2026-01-01", "maxLength": None, "pattern": 5}), make_object(a={}), ""),
        (make_object(a="string", b=None), make_object(a={}, b={}), ""),
        (make_object(a={"items": "string", "additionalProperties": "no"}), make_object(a={}), ""),
        # https://github.com/can1357/oh-my-pi/issues/2784 and https://github.com/codefuturist/email-mcp/issues/58, 2026.
        (
            make_object(a={"pattern": "^(?!null$)"}),
            make_object(a={"description": 'It fits {"pattern":"^(?!null$)"}.'}),
            "",
        ),
        (make_object(a={"pattern": "^[a-z_]{1,9}(-|:)$"}), make_object(a={"pattern": "^[a-z_]{1,9}(-|:)$"}), ""),
        (
            make_object(a={"description": "Text.", "maxLength": 10_000, "minLength": 1}),
            make_object(a={"description": 'Text. It fits {"maxLength":10000}.', "minLength": 1}),
            "",
        ),
    ],
)
async def test_a_tool_schema_is_sent_in_a_form_providers_accept(
    asking: Asking, given: Any, sent: Any, lost: str
) -> None:
    tool = llm_pb2.ToolSchema(name="f", description="does it", parameters=given and json.dumps(given))
    async with asking() as gateway:
        [offered] = (await read_body(gateway, tools=[tool]))["tools"]
    assert offered["function"]["parameters"] == sent
    assert (offered["function"]["description"] == "does it") == (not lost)
    assert lost in offered["function"]["description"]


@pytest.mark.parametrize(
    "pattern", ["a+", "^\\p{L}$", "^\\d{4}$", "^[a[b]$", "^a$|^b$", "^(?P<x>a)$", "^x{1,1000000000}$"]
)
async def test_a_pattern_that_not_every_server_reads_is_described_in_words(asking: Asking, pattern: str) -> None:
    tool = llm_pb2.ToolSchema(name="f", parameters=json.dumps(make_object(a={"pattern": pattern})))
    async with asking() as gateway:
        [offered] = (await read_body(gateway, tools=[tool]))["tools"]
    assert offered["function"]["parameters"]["properties"]["a"].keys() == {"description"}


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (
            {"type": "string", "anyOf": [{"enum": ["x"]}, {"type": "null"}, True]},
            {"anyOf": [{"type": "string", "enum": ["x"]}, {"type": "null"}, {}]},
        ),
        ({"$ref": "#/$defs/A", "description": "mine", "title": "B"}, {"$ref": "#/$defs/A", "title": "B"}),
        ({"$ref": "#/$defs/none", "description": "mine"}, {"$ref": "#/$defs/none", "description": "mine"}),
    ],
)
async def test_kimi_has_types_within_choices_and_references_without_conflicts(
    asking: Asking, given: Any, sent: Any
) -> None:
    """https://github.com/MoonshotAI/kimi-code/issues/2661, https://github.com/MoonshotAI/kimi-cli/issues/2061, 2026."""
    defined = {"$defs": {"A": {"type": "string", "description": "its"}}}
    tool = llm_pb2.ToolSchema(name="f", parameters=json.dumps(make_object(a=given) | defined))
    async with asking(models=[{"name": "moonshotai/Kimi-K2.6"}, {"name": "sim-1"}]) as gateway:
        for model, expected in (("moonshotai/Kimi-K2.6", sent), ("sim-1", given)):
            [offered] = (await read_body(gateway, tools=[tool], model=model))["tools"]
            assert offered["function"]["parameters"]["properties"]["a"] == (
                json.loads(json.dumps(expected).replace("true", "{}"))
            )


ODD_KEYS = make_object(**{"$top": {"type": "integer"}, "a": {}, "x" * 65: {}}) | {"required": ["a", "$top"]}


@pytest.mark.parametrize("protocol", ["openai", "anthropic", "bedrock"])
async def test_a_schema_key_claude_refuses_is_moved_to_the_description(asking: Asking, protocol: str) -> None:
    """One such key makes every request fail: https://github.com/anthropics/claude-code/issues/34771, 2026-03."""
    tool = llm_pb2.ToolSchema(name="f", parameters=json.dumps(ODD_KEYS | {"additionalProperties": False}))
    async with asking([{"steps": [{"content": "done"}]}], protocol=protocol) as gateway:
        body = await read_body(gateway, tools=[tool])
    if protocol == "openai":
        assert body["tools"][0]["function"]["parameters"]["properties"] == ODD_KEYS["properties"]
        return
    spec = body["tools"][0] if protocol == "anthropic" else body["toolConfig"]["tools"][0]["toolSpec"]
    sent = spec["input_schema"] if protocol == "anthropic" else spec["inputSchema"]["json"]
    assert sent == make_object(a={}) | {"required": ["a"]}
    assert '{"$top":{"type":"integer"}' in spec["description"]
    assert '"required":["$top"]' in spec["description"]


NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}, "$ref": {"type": "string"}}}
REFERRING = make_object(
    node={"$ref": "#/$defs/Node", "title": "Node"},
    kind={"type": "string", "enum": ["", "a"]},
    level={"type": "integer", "enum": [1, 2]},
    lost={"$ref": "#/$defs/Nothing", "description": "gone"},
)


@pytest.mark.parametrize("fields", [{"protocol": "gemini"}, {"models": [{"name": "google/gemini-3-pro"}]}])
async def test_gemini_receives_schemas_without_references_and_with_string_enums(
    asking: Asking, fields: dict[str, Any]
) -> None:
    """https://github.com/google-gemini/gemini-cli/issues/13326 (2025-11), https://github.com/anomalyco/opencode/issues/12295
    (2026-02), https://github.com/sbroenne/mcp-server-excel/issues/607 (2026-04)."""
    tool = llm_pb2.ToolSchema(name="f", parameters=json.dumps(REFERRING | {"$defs": {"Node": NODE}}))
    async with asking(**fields) as gateway:
        model = fields.get("models", [{"name": "sim-1"}])[0]["name"]
        body = await read_body(gateway, tools=[tool], model=model)
    if "protocol" in fields:
        sent = body["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"]
    else:
        sent = body["tools"][0]["function"]["parameters"]
    assert sent == make_object(
        node=make_object(next={}, **{"$ref": {"type": "string"}}) | {"title": "Node"},
        kind={"type": "string", "enum": ["a"]},
        level={"type": "integer"},
        lost={"description": "gone"},
    )


NULL = {"type": "null"}


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"type": "integer", "exclusiveMinimum": 0, "multipleOf": 2}, {"type": "integer", "minimum": 1}),
        ({"type": "number", "exclusiveMaximum": 1.5}, {"type": "number", "maximum": 1.5}),
        ({"const": "a", "default": "a"}, {"enum": ["a"], "default": "a"}),
        ({"type": ["string", "null"], "format": "uri"}, {"type": "string", "nullable": True}),
        ({"type": ["string", "integer"]}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ({"anyOf": [{"type": "integer"}, NULL], "title": "A"}, {"type": "integer", "nullable": True, "title": "A"}),
        ({"oneOf": [{"const": "a"}, {"type": "integer"}]}, {"anyOf": [{"enum": ["a"]}, {"type": "integer"}]}),
        ({"allOf": [{"$ref": "#/$defs/A"}], "description": "an A"}, A | {"type": "object", "description": "an A"}),
        ({"type": "array", "prefixItems": [{}], "uniqueItems": True}, {"type": "array", "items": {}}),
        ({"type": "object", "patternProperties": {"^a": {}}, "additionalProperties": {}}, {"type": "object"}),
    ],
)
async def test_gateways_to_gemini_receive_only_geminis_schema_keywords(asking: Asking, given: Any, sent: Any) -> None:
    """Any other keyword makes each request fail: https://github.com/databricks/unity-gateway/issues/491 (2026-09),
    https://github.com/openswarm-ai/openswarm/issues/24 (2026-05)."""
    root = {"$schema": "https://json-schema.org/draft/2020-12/schema", "additionalProperties": False, "$defs": DEFINED}
    tool = llm_pb2.ToolSchema(name="f", parameters=json.dumps(root | make_object(a=given)))
    async with asking(models=[{"name": "databricks-gemini-3-8-flash"}]) as gateway:
        [offered] = (await read_body(gateway, tools=[tool], model="databricks-gemini-3-8-flash"))["tools"]
    assert offered["function"]["parameters"] == make_object(a=sent)


async def test_exponentially_expanding_references_are_truncated(asking: Asking) -> None:
    levels = {
        f"L{level}": make_object(**{f"p{n}": {"$ref": f"#/$defs/L{level + 1}"} for n in range(10)})
        for level in range(20)
    }
    tool = llm_pb2.ToolSchema(
        name="f", parameters=json.dumps(make_object(a={"$ref": "#/$defs/L0"}) | {"$defs": levels})
    )
    async with asking(protocol="gemini") as gateway:
        body = await read_body(gateway, tools=[tool])
    assert len(json.dumps(body)) < 200_000


BLANK = " \n"


def list_texts(value: Any) -> list[str]:
    if isinstance(value, list):
        return [text for item in value for text in list_texts(item)]
    if not isinstance(value, dict):
        return []
    own = [value[key] for key in ("text", "content", "output") if isinstance(value.get(key), str)]
    return own + list_texts([*value.values()])


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("is_alone", [True, False])
async def test_no_provider_receives_a_blank_text(asking: Asking, protocol: str, is_alone: bool) -> None:
    """Claude, GLM, MiniMax and Volcengine refuse the chat for it: https://github.com/anomalyco/opencode/issues/31259,
    https://github.com/earendil-works/pi/pull/3309, https://github.com/quailyquaily/mistermorph/pull/46 (2026)."""
    with_image = text_message("user", BLANK)
    with_image.content.append(IMAGE)
    calls = [asks(call("a"), call("b"), text=BLANK), answers("a", ""), answers("b", BLANK)]
    messages = [text_message("system", BLANK), with_image, *calls, text_message("assistant", BLANK)]
    messages = [*([] if is_alone else messages), text_message("user", BLANK)]
    async with asking([{"steps": [{"content": "done"}]}], protocol=protocol) as gateway:
        texts = list_texts(await read_body(gateway, *messages, tools=[TOOL]))
    assert all(map(str.strip, texts))
    assert texts.count("(empty)") == (1 if is_alone else 3)


@pytest.mark.parametrize(
    ("fields", "model"), [({"protocol": "bedrock"}, "sim-1"), ({"models": [{"name": "claude-x"}]}, "claude-x")]
)
async def test_tools_called_earlier_are_declared_to_claude(asking: Asking, fields: dict[str, Any], model: str) -> None:
    messages = [USER, *make_named_call("a", "web.search"), text_message("user", "Sum it up.")]
    async with asking([{"steps": [{"content": "done"}]}], **fields) as gateway:
        body = await read_body(gateway, *messages, model=model)
        plain = await read_body(gateway, USER, model=model)
    if "protocol" in fields:
        assert [tool["toolSpec"]["name"] for tool in body["toolConfig"]["tools"]] == ["web_search"]
        assert body["system"] == [{"text": "Answer without calling a tool."}]
    else:
        assert [tool["function"]["name"] for tool in body["tools"]] == ["web_search"]
        assert body["tool_choice"] == "none"
    assert not plain.keys() & {"tools", "toolConfig", "tool_choice", "system"}


@pytest.mark.parametrize("fields", [{"reasoning": "thinking"}, {"reasoningKept": "chat"}])
async def test_calls_include_reasoning_where_the_provider_requires_it(asking: Asking, fields: dict[str, Any]) -> None:
    thought = [asks(call(id), reasoning_content=reasoning) for id, reasoning in (("a", ""), ("b", "hm"))]
    async with asking(**fields) as gateway:
        body = await read_body(gateway, USER, thought[0], answers("a"), thought[1], answers("b"), asks(text="so"), USER)
    assert [message.get("reasoning_content") for message in body["messages"][1:6:2]] == [" ", "hm", None]


async def test_an_answers_blocks_are_sent_back_in_their_original_order(asking: Asking) -> None:
    blocks = [
        {"type": "thinking", "thinking": "Hm", "signature": sign_thinking("Hm")},
        {"type": "text", "chars": 7},
        {"type": "thinking", "thinking": "Now", "signature": sign_thinking("Now")},
        {"type": "tool_use"},
        {"type": "text", "chars": 3},
    ]
    state = orjson.dumps({"provider": "sim", "thinking_blocks": blocks}).decode()
    answer = asks(call("a"), text="I look.Yes", provider_state=state)
    other = asks(call("a"), text="I look. Yes, I do.", provider_state=state)
    async with asking(protocol="anthropic", reasoning="adaptive") as gateway:
        sent = [
            [
                block["type"]
                for block in (await read_body(gateway, USER, assistant, answers("a")))["messages"][1]["content"]
            ]
            for assistant in (answer, other)
        ]
    assert sent == [["thinking", "text", "thinking", "tool_use", "text"], ["thinking", "thinking", "text", "tool_use"]]


@pytest.mark.parametrize(("model", "is_given"), [("sim-1", True), ("sim-2", False)])
async def test_provider_state_is_sent_back_only_to_the_model_that_produced_it(
    asking: Asking, model: str, is_given: bool
) -> None:
    """Signatures are a model's own: https://github.com/vybestack/llxprt-code/issues/2335 (2026-07),
    https://github.com/openai/codex/issues/17541 (2026-04)."""
    models = [{"name": name, "capabilities": ["reasoning"]} for name in ("sim-1", "sim-2")]
    script = [{"match": {"turn": 1}, "steps": [{"reasoning": "Hm"}, {"content": "So."}, {"toolCall": "f", "id": "a"}]}]
    async with asking(
        [*script, {"steps": [{"content": "done"}]}], protocol="anthropic", reasoning="adaptive", models=models
    ) as gateway:
        result = await gateway.chat(tools=[TOOL], reasoning=llm_pb2.Reasoning(enabled=True))
        [state] = [delta.provider_state for delta in result.deltas if delta.provider_state]
        answer = asks(call("a"), text="So.", provider_state=state)
        body = await read_body(gateway, USER, answer, answers("a"), tools=[TOOL], model=model)
    kinds = [block["type"] for block in body["messages"][1]["content"]]
    assert kinds == [*(["thinking"] if is_given else []), "text", "tool_use"]


STALE: dict[str, dict[str, Any]] = {
    "anthropic": {
        "thinking_blocks": [{"type": "thinking", "thinking": "Hm", "signature": "old"}, {"type": "tool_use"}]
    },
    "bedrock": {
        "content_blocks": [
            {"reasoningContent": {"reasoningText": {"text": "Hm", "signature": "old"}}},
            {"call": True},
        ]
    },
    "openai_responses": {
        "output_items": [
            {"type": "reasoning", "summary": [], "encrypted_content": "old"},
            {"type": "function_call", "call": True},
        ]
    },
    "gemini": {"parts": [{"call": True, "thoughtSignature": "old"}]},
}


@pytest.mark.parametrize("protocol", STALE)
async def test_a_refused_provider_state_does_not_end_the_chat(asking: Asking, protocol: str) -> None:
    """Another key, account or version at the same URL can no longer read it:
    https://github.com/anthropics/anthropic-sdk-python/issues/1598 (2026-05), https://github.com/openai/codex/issues/8119
    (2025-12)."""
    state = orjson.dumps({"provider": "sim"} | STALE[protocol]).decode()
    async with asking([{"steps": [{"content": "done"}]}], protocol=protocol) as gateway:
        for _ in range(2):
            result = await gateway.chat(USER, asks(call("a"), provider_state=state), answers("a"), tools=[TOOL])
            assert (result.content, result.error) == (["done"], None)
        assert [request.status for request in gateway.sim.requests] == [400, 200, 200]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "messages.1.content.0: Invalid `signature` in `thinking` block"),
        (400, "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified."),
        (400, "The encrypted content for item rs_1 could not be verified."),
        (404, "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."),
        (400, "Item 'rs_1' of type 'reasoning' was provided without its required following item."),
        (400, "Corrupted thought signature."),
        (400, "Invalid 'input[2].id': string too long. Expected a string with maximum length 64, but got 416."),
        (400, "Unknown parameter: 'input[1].phase'."),
        (404, "Item with id 'msg_1' not found. Items are not persisted when `store` is set to false."),
        (400, "Duplicate item found with id rs_1. Remove duplicate items from your input and try again."),
        (400, "Conflicting authenticated continuation identities."),
        (400, "Could not decode the compaction blob. Ensure it is unmodified from the compact response."),
        # https://github.com/danny-avila/LibreChat/pull/13888 (2026-06)
        (400, "Value at 'messages.3.member.content.0.member.reasoningContent.reasoningText.text' must not be null"),
        (400, "messages.1.content.0.thinking: each thinking block must contain thinking"),
        (400, "web_search tool use with id srvtoolu_1 was found without a corresponding web_search_tool_result block"),
    ],
)
async def test_each_vendors_refusal_of_a_provider_state_is_recognized(
    asking: Asking, status: int, message: str
) -> None:
    state = orjson.dumps({"provider": "sim", "reasoning_details": [{"type": "x"}]}).decode()
    refusal = http_answer(status, orjson.dumps({"error": {"message": message}}), Content_Type="application/json")
    async with asking(answers=[refusal, HELLO]) as gateway:
        assert (await gateway.chat(USER, asks(call("a"), provider_state=state), answers("a"))).content == ["hello"]
    async with asking(answers=[refusal, HELLO]) as gateway:
        assert (await gateway.chat(USER, asks(call("a")), answers("a"))).reason == "INVALID_REQUEST"


PICTURE = llm_pb2.ContentPart(image=llm_pb2.ImagePart(data=b"\x89PNG\r\n\x1a\n", mime_type="image/png"))
DOCUMENT = llm_pb2.ContentPart(file=llm_pb2.FilePart(data=b"%PDF", mime_type="application/pdf", name="a.pdf"))
NO_IMAGE, NO_FILE = "[image, not shown: ", "[a.pdf, not shown: "


@pytest.mark.parametrize(
    ("status", "said", "shown"),
    [
        (400, "messages[1]: unknown variant `image_url`, expected `text` at line 1 column 173667", NO_IMAGE),
        (404, "No endpoints found that support image input", NO_IMAGE),
        (
            400,
            "The image length and width do not meet the model restrictions. [height:1 must be larger than 10]",
            NO_IMAGE,
        ),
        (400, "Invalid PNG image", NO_IMAGE),
        (500, "image input is not supported - hint: you may need to provide the mmproj", NO_IMAGE),
        (500, 'Failed to parse messages: Unsupported content part type: "image_url"', NO_IMAGE),
        (400, "messages.1.content must be a string", NO_IMAGE + NO_FILE),
        (400, "Output of tool call should be 'Input text'", NO_IMAGE + NO_FILE),
        (400, "m is not a multimodal model", NO_IMAGE + NO_FILE),
        (400, "Unknown part type: file", NO_FILE),
        (400, "temperature of m is wrong", ""),
        (503, "the image service is down", ""),
    ],
)
async def test_a_picture_or_file_that_a_provider_refuses_does_not_end_the_chat(
    asking: Asking, status: int, said: str, shown: str
) -> None:
    """It is in each later request, too: https://github.com/nesquena/hermes-webui/issues/2297 and
    https://github.com/MoonshotAI/kimi-code/issues/3087, 2026."""
    hello = {"match": {"text": "not shown"}, "steps": [{"content": ["hello"]}]}
    refusal = {"steps": [{"status": status, "body": {"error": {"message": said}}}]}
    async with asking([hello, refusal], models=[{"name": "image-1"}]) as gateway:
        answer = await gateway.chat(llm_pb2.Message(role="user", content=[PICTURE, DOCUMENT]), model="image-1")
        sent = [str(request.body) for request in gateway.sim.requests]
    assert (answer.content, len(sent)) == ((["hello"], 2) if shown else ([], 1))
    assert [note in sent[-1] for note in (NO_IMAGE, NO_FILE)] == [note in shown for note in (NO_IMAGE, NO_FILE)]


FILE = llm_pb2.ContentPart(file=llm_pb2.FilePart(data=b"pdf", mime_type="application/pdf", name="a.pdf"))
FAR = llm_pb2.ContentPart(image=llm_pb2.ImagePart(url="https://example.org/x.png?token=1"))


@pytest.mark.parametrize(
    ("part", "said", "remark"),
    [
        (IMAGE, "Could not process image", "[image, not shown: Could not process image]"),
        (IMAGE, "messages[1]: unknown variant `image_url`, expected `text`", "[image, not shown: messages[1]: unknown"),
        (IMAGE, "This model does not support vision.", "[image, not shown: This model"),
        (FAR, "Unable to download the file. Please verify the URL and try again.", "[https://example.org/x.png?token="),
        (FAR, "messages.0.content.1.image.source.base64.data: URL sources are not supported", "not shown: messages.0."),
        (
            FILE,
            "messages.0.content.1.pdf.source.base64.data: A maximum of 100 PDF pages may be provided.",
            "[a.pdf, not",
        ),
        (FILE, "The PDF specified is password protected.", "[a.pdf, not shown: The PDF"),
        (FILE, "The document has no pages.", "[a.pdf, not shown: The document has no pages.]"),
    ],
)
async def test_a_file_that_its_provider_refuses_does_not_end_the_chat(
    asking: Asking, part: llm_pb2.ContentPart, said: str, remark: str
) -> None:
    """It would be in each later request, too: https://github.com/anthropics/claude-code/issues/46127 (2026-04) and
    issues/6231 (2025-08), https://github.com/BerriAI/litellm/issues/18430 (2025-12)."""
    user = text_message("user", "what is it?")
    user.content.append(part)
    refusal = http_answer(400, orjson.dumps({"error": {"message": said}}), Content_Type="application/json")
    async with asking(answers=[refusal, HELLO], models=[{"name": "sim-1"}]) as gateway:
        assert (await gateway.chat(user)).content == ["hello"]
        assert len(gateway.heads) == 2
        assert remark.encode() in gateway.heads[1]
    async with asking(answers=[refusal, HELLO], models=[{"name": "image-1"}]) as gateway:
        assert (await gateway.chat(model="image-1")).reason == "INVALID_REQUEST", "there is no such part"


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_claude_and_gemini_have_a_users_turn_first_and_last(asking: Asking, protocol: str) -> None:
    """A greeting at the beginning, and a model's turn at the end, are refused in each request:
    https://github.com/langgenius/dify/issues/12340 (2025-01), https://github.com/smallmain/vscode-unify-chat-provider/issues/249
    (2026-07), https://github.com/crewAIInc/crewAI/pull/6973 (2026-08)."""
    greeting = text_message("assistant", "How can I help?")
    async with asking([{"steps": [{"content": "done"}]}], protocol=protocol) as gateway:
        body = await read_body(gateway, SYSTEM, greeting, USER, greeting)
    turns = body.get("messages") or body.get("contents") or body["input"]
    roles = [turn["role"].replace("model", "assistant") for turn in turns if turn["role"] != "system"]
    ends = [] if protocol.startswith("openai") else ["user"]
    assert roles == [*ends, "assistant", "user", "assistant", *ends]


@pytest.mark.parametrize("model", ["us.amazon.nova-pro-v1:0", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"])
async def test_nova_has_only_its_keywords_at_the_root_of_a_schema(asking: Asking, model: str) -> None:
    """One other makes each request fail: https://github.com/zed-industries/zed/issues/28521 (2025-04),
    https://github.com/pydantic/pydantic-ai/issues/1623."""
    root = {"$schema": "x", "additionalProperties": False, "title": "Args", "required": ["a"], "$defs": DEFINED}
    tool = llm_pb2.ToolSchema(name="f", parameters=json.dumps(root | make_object(a={"$ref": "#/$defs/A"})))
    async with asking([{"steps": [{"content": "done"}]}], protocol="bedrock", models=[{"name": model}]) as gateway:
        [offered] = (await read_body(gateway, tools=[tool], model=model))["toolConfig"]["tools"]
    sent = offered["toolSpec"]["inputSchema"]["json"]
    narrow = make_object(a=A | {"type": "object"}) | {"required": ["a"]}
    assert sent == (narrow if "nova" in model else root | make_object(a={"$ref": "#/$defs/A"}))


@pytest.mark.parametrize(
    ("status", "said", "sent"),
    [
        (400, "Unexpected role 'user' after role 'tool'", ["user", "assistant", "tool", "assistant", "user"]),
        (500, "Conversation roles must alternate user/assistant", ["user", "assistant", "tool", "assistant", "user"]),
        (
            400,
            "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.",
            ["user", "assistant", "tool", "user"],
        ),
    ],
)
async def test_turns_and_ids_that_mistrals_models_refuse_on_any_server_get_their_form(
    asking: Asking, status: int, said: str, sent: list[str]
) -> None:
    """A cancelled tool would end the chat: https://github.com/mistralai/mistral-vibe/issues/578, 2026-04."""
    refusal = [{"steps": [{"status": status, "body": {"error": {"message": said}}}]}]
    async with asking(refusal) as gateway:
        await gateway.chat(USER, asks(call("call_1")), answers("call_1"), USER)
        assert len(gateway.sim.requests) == 2
        first, second = (request.body["messages"] for request in gateway.sim.requests)
    assert [message["role"] for message in second] == sent
    ids = [message[1]["tool_calls"][0]["id"] for message in (first, second)]
    assert ids[1] == second[2]["tool_call_id"]
    assert (len(ids[1]) == 9) == ("length of 9" in said)
