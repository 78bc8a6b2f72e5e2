"""Token estimates without a tokeniser."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.v1.llm_pb2 import ChatRequest

TOKEN_BYTES = 4
"""Bytes of UTF-8 per token."""

IMAGE_TOKENS = 1_000
"""About a megapixel at OpenAI, Anthropic and Qwen (2026-05)."""

OUTPUT_TOKENS = 1_000


def estimate_input(request: ChatRequest) -> int:
    size_bytes, images = request.ByteSize(), 0
    for message in request.messages:
        for part in message.content:
            if part.HasField("image"):
                images += 1
                size_bytes -= part.image.ByteSize()
    return size_bytes // TOKEN_BYTES + images * IMAGE_TOKENS


def estimate_total(request: ChatRequest) -> int:
    return estimate_input(request) + (request.max_tokens or OUTPUT_TOKENS)
