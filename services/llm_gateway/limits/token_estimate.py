"""Token estimates without a tokeniser."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.v1.llm_pb2 import ChatRequest

TOKEN_BYTES = 4
"""Bytes of UTF-8 per token."""

MEDIA_TOKENS = {"image": 1_000, "audio": 1_000, "file": 10_000}
"""About a megapixel at OpenAI, Anthropic and Qwen (2026-05), two minutes of sound, five pages."""

OUTPUT_TOKENS = 1_000


def estimate_input(request: ChatRequest) -> int:
    size_bytes, media_tokens = request.ByteSize(), 0
    for message in request.messages:
        for part in message.content:
            if tokens := MEDIA_TOKENS.get(part.WhichOneof("part") or ""):
                media_tokens += tokens
                size_bytes -= part.ByteSize()
    return size_bytes // TOKEN_BYTES + media_tokens


def estimate_total(request: ChatRequest) -> int:
    return estimate_input(request) + (request.max_tokens or OUTPUT_TOKENS)
