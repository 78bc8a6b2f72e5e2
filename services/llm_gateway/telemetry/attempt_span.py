"""The span of one attempt: a client span of OpenTelemetry's conventions for generative AI.

The texts of people, models and tools are recorded only if `spans.captures_content`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import orjson
from opentelemetry.trace import SpanKind

from headrace.v1 import llm_pb2
from headrace.v1.llm_pb2 import ChatRequest, EmbedRequest, LlmDelta
from services.llm_gateway.telemetry.interaction_log import CallRecord
from services.runtime.telemetry import names, spans
from services.runtime.telemetry.masking import mask_secrets

VENDORS = {
    "api.openai.com": "openai",
    "openai.azure.com": "azure.ai.openai",
    "cognitiveservices.azure.com": "azure.ai.openai",
    "ai.azure.com": "azure.ai.inference",
    "api.anthropic.com": "anthropic",
    "amazonaws.com": "aws.bedrock",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "googleapis.com": "gcp.vertex_ai",
    "cohere.com": "cohere",
    "cohere.ai": "cohere",
    "deepseek.com": "deepseek",
    "groq.com": "groq",
    "ml.cloud.ibm.com": "ibm.watsonx.ai",
    "mistral.ai": "mistral_ai",
    "moonshot.ai": "moonshot_ai",
    "moonshot.cn": "moonshot_ai",
    "perplexity.ai": "perplexity",
    "x.ai": "x_ai",
}
"""Well-known values of `gen_ai.provider.name`, by the end of the host's name."""

PROTOCOL_VENDORS = {
    "openai": "openai",
    "openai_responses": "openai",
    "anthropic": "anthropic",
    "gemini": "gcp.gemini",
    "bedrock": "aws.bedrock",
}
"""For other hosts: the vendor whose form of telemetry the protocol has."""


_REQUEST_FIELDS = {
    names.REQUEST_MAX_TOKENS: "max_tokens",
    names.REQUEST_TEMPERATURE: "temperature",
    names.REQUEST_TOP_P: "top_p",
    names.EMBEDDING_DIMENSIONS: "dimensions",
}
_ALWAYS_COUNTED = {names.INPUT_TOKENS: "input_tokens", names.OUTPUT_TOKENS: "output_tokens", names.COST_USD: "cost_usd"}
_USAGE_FIELDS = {
    names.CACHE_READ_TOKENS: "cached_tokens",
    names.CACHE_WRITE_TOKENS: "cache_write_tokens",
    names.REASONING_TOKENS: "reasoning_tokens",
}
"""Fields of requests and of Usage, by the attributes with their values."""


def find_vendor(protocol: str, host: str) -> str:
    """Return the well-known name of the vendor at `host`."""
    labels = host.lower().split(".")
    ends = (".".join(labels[at:]) for at in range(len(labels)))
    return next((VENDORS[end] for end in ends if end in VENDORS), PROTOCOL_VENDORS[protocol])


@lru_cache(maxsize=256)
def find_server(protocol: str, url: str) -> tuple[str, str]:
    """Return the host of an address, and the well-known name of its vendor."""
    host = urlsplit(url).hostname or ""
    return host, find_vendor(protocol, host)


def tracing_attempt(
    call: CallRecord, protocol: str, url: str, request: ChatRequest | EmbedRequest, secrets: Iterable[str] = ()
) -> AbstractContextManager[object]:
    """Record the block as an attempt at `url`, of which only host and port are recorded."""
    call.server, call.vendor = find_server(protocol, url)
    return _recording_attempt(call, url, request, secrets) if spans.is_recording() else spans.NO_SPAN


@contextmanager
def _recording_attempt(
    call: CallRecord, url: str, request: ChatRequest | EmbedRequest, secrets: Iterable[str]
) -> Generator[None]:
    server = urlsplit(url)
    attributes: dict[str, Any] = {
        names.OPERATION: call.operation,
        names.PROVIDER: call.vendor,
        names.REQUEST_MODEL: call.model,
        names.SERVER_ADDRESS: call.server,
        names.SERVER_PORT: server.port or (443 if server.scheme == "https" else 80),
        names.PROVIDER_KEY: call.provider,
        names.STAGE: call.stage,
        names.ATTEMPT: call.attempt,
    }
    attributes |= _describe_request(request)
    masked: Callable[[str], str] = lambda text: mask_secrets(text, *secrets)  # noqa: E731
    if spans.captures_content() and isinstance(request, ChatRequest):
        attributes |= _record_request(request, masked)
    with spans.start_span(f"{call.operation} {call.model}", attributes, SpanKind.CLIENT) as span:
        try:
            yield
        finally:
            span.set_attributes(_describe_result(call, masked))


def _describe_request(request: ChatRequest | EmbedRequest) -> dict[str, Any]:
    given = {field.name: value for field, value in request.ListFields()}
    attributes = {name: given[field] for name, field in _REQUEST_FIELDS.items() if field in given}
    if isinstance(request, ChatRequest):
        attributes[names.REQUEST_STREAM] = True
    if "output_format" in given:
        attributes[names.OUTPUT_TYPE] = "json"
    return attributes


def _describe_result(call: CallRecord, masked: Callable[[str], str]) -> spans.Attributes:
    attributes: dict[str, Any] = {names.DELTAS: call.deltas}
    if call.finish_reason:
        attributes[names.FINISH_REASONS] = [call.finish_reason]
    if (head := call.head) is not None:
        attributes |= {names.RESPONSE_ID: head.answer_id, names.RESPONSE_MODEL: head.answer_model}
    if call.first_delta_s is not None:
        attributes[names.FIRST_CHUNK_S] = call.first_delta_s - call.started_s
    if (usage := call.usage) is not None:
        counts = {field.name: value for field, value in usage.ListFields()}
        attributes |= {name: counts.get(field, 0) for name, field in _ALWAYS_COUNTED.items()}
        attributes |= {name: counts[field] for name, field in _USAGE_FIELDS.items() if field in counts}
    if call.answer is not None:
        attributes[names.OUTPUT_MESSAGES] = masked(call.answer.build_json(call.finish_reason))
    return attributes


def _record_request(request: ChatRequest, masked: Callable[[str], str]) -> dict[str, str]:
    """Return instructions, messages and tools as JSON; of long conversations, the last messages that fit."""
    instructions: list[Any] = []
    messages: list[Any] = []
    chars = 0
    for message in reversed(request.messages):
        parts = _list_parts(message)
        chars += sum(len(str(part)) for part in parts)
        if chars > spans.CONTENT_CHARS_MAX:
            break
        if message.role == "system":
            instructions = parts + instructions
        else:
            messages.append({"role": message.role, "parts": parts})
    recorded = {names.INPUT_MESSAGES: messages[::-1]}
    if instructions:
        recorded[names.SYSTEM_INSTRUCTIONS] = instructions
    tools = [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": _parse_or_keep(tool.parameters),
        }
        for tool in request.tools
    ]
    if tools and len(str(tools)) <= spans.CONTENT_CHARS_MAX:
        recorded[names.TOOL_DEFINITIONS] = tools
    return {name: masked(orjson.dumps(value).decode()) for name, value in recorded.items()}


def _list_parts(message: llm_pb2.Message) -> list[dict[str, Any]]:
    """Return a message's parts; images, sounds and files without their bytes."""
    if message.role == "tool":
        response = "".join(part.text for part in message.content)
        return [{"type": "tool_call_response", "id": message.tool_call_id, "response": response}]
    parts: list[dict[str, Any]] = []
    if message.reasoning_content:
        parts.append({"type": "reasoning", "content": message.reasoning_content})
    for part in message.content:
        kind = part.WhichOneof("part")
        if kind == "text":
            parts.append({"type": "text", "content": part.text})
        elif kind is not None:
            mime_type = getattr(part, kind).mime_type
            parts.append({"type": "blob", "modality": kind, "mime_type": mime_type, "content": ""})
    return parts + [_make_call(call.id, call.name, call.arguments) for call in message.tool_calls]


def _make_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": _parse_or_keep(arguments)}


def _parse_or_keep(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


class Answer:
    """The texts of one answer, for its span."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {"reasoning": [], "content": []}
        self._calls: dict[int, llm_pb2.ToolCallDelta] = {}
        self._chars = 0

    def wrap_send(self, send: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
        def record_and_send(message: bytes) -> bool:
            if self._chars < spans.CONTENT_CHARS_MAX:
                self._add(LlmDelta.FromString(message))
            return send(message)

        return record_and_send

    def _add(self, delta: LlmDelta) -> None:
        kind = delta.WhichOneof("delta") or ""
        if kind in self._texts:
            text = getattr(delta, kind)
            self._texts[kind].append(text)
            self._chars += len(text)
        elif kind == "tool_call":
            call = self._calls.setdefault(delta.tool_call.index, llm_pb2.ToolCallDelta())
            call.MergeFrom(llm_pb2.ToolCallDelta(id=delta.tool_call.id, name=delta.tool_call.name))
            call.arguments += delta.tool_call.arguments
            self._chars += len(delta.tool_call.arguments)

    def build_json(self, finish_reason: str) -> str:
        parts: list[dict[str, Any]] = [
            {"type": kind, "content": "".join(texts)}
            for kind, texts in (("reasoning", self._texts["reasoning"]), ("text", self._texts["content"]))
            if texts
        ]
        parts += [_make_call(call.id, call.name, call.arguments) for _, call in sorted(self._calls.items())]
        message = {"role": "assistant", "parts": parts, "finish_reason": finish_reason or "error"}
        return orjson.dumps([message]).decode()
