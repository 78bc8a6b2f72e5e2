"""Converts a ChatRequest to the body of POST {baseUrl}/model/{model}/converse-stream.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html (2026-11). Turns alternate
between two roles, and the only field of a block names its kind. One user turn has all results and the user's text.
Blank texts are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import orjson

from headrace.v1 import llm_pb2
from services.llm_gateway.fitting.provider_state import order_blocks, unpack_state
from services.llm_gateway.fitting.turns import BLANK_LINE, is_media, join_parts, join_system_text
from services.llm_gateway.protocols.bedrock.reader import KIND, REASONING
from services.llm_gateway.protocols.common.media import encode_media
from services.llm_gateway.protocols.common.request_rules import (
    DEFAULT_NAME,
    NO_THINKING,
    Block,
    Turn,
    build_limits,
    build_thinking,
    check_tool_choice,
    describe_form,
    find_closed_schema,
    join_turns,
)
from services.llm_gateway.protocols.common.tool_calls import parse_input
from services.llm_gateway.providers.provider_file import Model, Provider

PATH = "/model/{model}/converse-stream"
HEADERS = {"Accept": "application/vnd.amazon.eventstream"}

OUTPUT_TOKENS_MAX = 8_192
"""Limit of an answer with thoughts, which count towards it, if the request has none."""

NO_CALL = "Answer without calling a tool."
"""Instruction in place of the choice `none`, which Converse lacks."""

CACHE_POINT = {"cachePoint": {"type": "default"}}

CACHING = ("anthropic.claude", "amazon.nova")
"""Parts of the names of models that support cache marks (docs, "Prompt caching"); others refuse them."""

NO_PARAMETERS = {"type": "object", "properties": {}}

_UNFIT_NAME = re.compile(r"[^A-Za-z0-9()\[\]-]+")
"""Characters that a document's name may not contain, or not twice in a row."""

NAME_LENGTH_MAX = 200

MEDIA_MAX = {"document": 5, "image": 20}
"""Maximum documents, and images with documents, of a request: a further one is refused in each later request of a chat
(https://github.com/aws-samples/generative-ai-use-cases/issues/1685, 2026-08; https://github.com/boto/boto3/issues/4632,
2025-10)."""

PDF = "pdf"

FORMATS = {"text/plain": "txt", "text/csv": "csv", "text/html": "html", "text/markdown": "md"}
"""Formats of documents, by type (https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_DocumentBlock.html)."""


def build_body(request: llm_pb2.ChatRequest, provider: Provider, model: Model) -> dict[str, Any]:
    turns = build_turns(request.messages, provider.key)
    _fit_media(turns)
    # The ends of the instructions, which come after the tools, and of the conversation are marked.
    is_cached = provider.prompt_cache and any(name in request.model for name in CACHING)
    config = build_limits(request, "temperature", "topP", "maxTokens")
    body: dict[str, Any] = {"messages": turns}
    instructions = [join_system_text(request.messages)]
    wanted, schema = request.output_format, find_closed_schema(request, model)
    if schema is not None:
        form = {"schema": schema, "name": wanted.name or DEFAULT_NAME}
        if wanted.description:
            form["description"] = wanted.description
        body["outputConfig"] = {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": form}}}
    elif request.HasField("output_format"):
        instructions.append(describe_form(wanted))
    if request.tools and request.tool_choice == "none":
        instructions.append(NO_CALL)
    if text := BLANK_LINE.join(filter(None, instructions)):
        body["system"] = [{"text": text}, *([CACHE_POINT] if is_cached else [])]
    if tools := _build_tools(request):
        body["toolConfig"] = tools
    limit = request.max_tokens or model.max_output or OUTPUT_TOKENS_MAX
    wish = _build_reasoning(request, provider, model, limit, turns)
    if wish.get("thinking", NO_THINKING) != NO_THINKING:
        # Both are refused together with thoughts; the budget of thoughts is a part of the limit.
        config = {"maxTokens": limit}
    body |= {"additionalModelRequestFields": wish} if wish else {}
    if "claude" in request.model and "temperature" in config:
        config.pop("topP", None)  # models since Claude 4.5 refuse both together
    if config:
        body["inferenceConfig"] = config
    if is_cached:
        turns[-1]["content"].append(CACHE_POINT)
    return body


def _build_tools(request: llm_pb2.ChatRequest) -> dict[str, Any]:
    specs: list[dict[str, Any]] = []
    for tool in request.tools:
        description = {"description": tool.description} if tool.description else {}
        schema = orjson.Fragment(tool.parameters) if tool.parameters else NO_PARAMETERS
        specs.append({"name": tool.name} | description | {"inputSchema": {"json": schema}})
    if not specs:
        return {}
    config: dict[str, Any] = {"tools": [{"toolSpec": spec} for spec in specs]}
    match request.tool_choice:
        case "" | "none" | "auto":
            pass
        case "required":
            config["toolChoice"] = {"any": {}}
        case name:
            check_tool_choice(request)
            config["toolChoice"] = {"tool": {"name": name}}
    return config


def _build_reasoning(
    request: llm_pb2.ChatRequest, provider: Provider, model: Model, limit: int, turns: list[Turn]
) -> dict[str, Any]:
    effort = request.reasoning.effort.lower() or "medium"
    if "claude" in request.model:
        return build_thinking(request, provider, model, limit, lacks_thoughts=lacks_thoughts(turns))
    if not request.reasoning.enabled or "reasoning" not in model.capabilities:
        return {}
    if "nova" in request.model:
        return {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": effort}}
    return {"reasoning_effort": effort} if "gpt-oss" in request.model else {}


def build_turns(messages: Iterable[llm_pb2.Message], provider: str) -> list[Turn]:
    return join_turns(messages, lambda message: _build_blocks(message, provider))


def _fit_media(turns: Iterable[Turn]) -> None:
    """Replace the oldest documents and images that are too many by a remark, and number documents of the same name, in
    any case (https://github.com/BerriAI/litellm/pull/30093, 2026-06)."""
    blocks = [
        inner
        for turn in turns
        for block in turn["content"]
        for inner in (block, *block.get("toolResult", {}).get("content", ()))
    ]
    shown = dict.fromkeys(MEDIA_MAX, 0)
    for block in reversed(blocks):
        if (kind := next((kind for kind in MEDIA_MAX if kind in block), None)) is None:
            continue
        if shown[kind] < MEDIA_MAX[kind] and sum(shown.values()) < max(MEDIA_MAX.values()):
            shown[kind] += 1
        else:
            block["text"] = f"[{block.pop(kind).get('name', kind)}: shown in an earlier turn]"
    taken: set[str] = set()
    for document in (block["document"] for block in blocks if "document" in block):
        name, number = document["name"][: NAME_LENGTH_MAX - len(" (100)")].rstrip(), 1
        document["name"] = name
        while document["name"].lower() in taken:
            number += 1
            document["name"] = f"{name} ({number})"
        taken.add(document["name"].lower())


def lacks_thoughts(turns: list[Turn]) -> bool:
    """Return whether results answer calls without thoughts, for example another provider's."""
    if len(turns) < 2 or not any("toolResult" in block for block in turns[-1]["content"]):
        return False
    return REASONING not in turns[-2]["content"][0]


def _build_blocks(message: llm_pb2.Message, provider: str) -> list[Block]:
    if message.role == "tool":
        return [{"toolResult": {"toolUseId": message.tool_call_id, "content": _build_parts(message)}}]
    if message.role != "assistant":
        return _build_parts(message)
    calls: list[Block] = [
        {"toolUse": {"toolUseId": call.id, "name": call.name, "input": parse_input(call.arguments)}}
        for call in message.tool_calls
    ]
    # Models that do not sign their thoughts refuse them in requests (https://github.com/earendil-works/pi/pull/1505).
    kept = [block for block in unpack_state(message.provider_state, provider, KIND) if not _is_unsigned(block)]
    text = "".join(part.text for part in message.content)
    ordered = order_blocks(kept, text, calls) if kept else None
    # An answer that was cut, or one of another provider.
    return [*_build_parts(message), *calls] if ordered is None else ordered


def _is_unsigned(block: Block) -> bool:
    thought = block.get(REASONING, {}).get("reasoningText")
    return thought is not None and not thought.get("signature")


def _build_parts(message: llm_pb2.Message) -> list[Block]:
    if not any(map(is_media, message.content)):
        return [{"text": text}] if (text := join_parts(message.content)).strip() else []
    blocks = [block for part in message.content if (block := _build_part(part)) is not None]
    if message.role == "user" and not any("text" in block for block in blocks):
        names = [block["document"]["name"] for block in blocks if "document" in block]
        blocks += [{"text": ", ".join(names)}] if names else []  # a document needs a text in the same message
    return blocks


def _build_part(part: llm_pb2.ContentPart) -> Block | None:
    match part.WhichOneof("part"):
        case "image":
            encoded = encode_media(part.image)
            if encoded is None:
                return {"text": part.image.url}
            kind = encoded.mime_type.rpartition("/")[2].replace("jpg", "jpeg")
            return {"image": {"format": kind, "source": {"bytes": encoded.base64}}}
        case "file":
            encoded = encode_media(part.file)
            name = _UNFIT_NAME.sub(" ", part.file.name.rpartition(".")[0] or part.file.name).strip() or "document"
            source = {"bytes": encoded.base64 if encoded else ""}
            kind = FORMATS.get(encoded.mime_type, PDF) if encoded else PDF
            return {"document": {"format": kind, "name": name, "source": source}}
        case _:
            return {"text": part.text} if part.text.strip() else None
