"""Computes the cost of requests if the provider caches the prefix shared with the previous request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from services.runtime.tokens import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.message import Message

    from headrace.v1 import llm_pb2, memory_pb2

ENCODING = "o200k_base"

CACHED_PRICE = 0.1
"""Price of a cached token, relative to an uncached one."""


@dataclass(slots=True)
class PrefixCost:
    """Sums the requests of one conversation, in order."""

    tokens: int = 0
    """Input tokens of all requests."""
    cost: float = 0.0
    """Cost in uncached tokens; tokens in the prefix shared with the previous request count at the cached price."""
    _before: list[bytes] = field(default_factory=list[bytes])

    def add(self, loaded: memory_pb2.LoadContextResponse, tools: Sequence[llm_pb2.ToolSchema] = ()) -> None:
        """Add a request. `tools` precede the messages, as with the providers for which changing them costs most."""
        tokens: list[tuple[Message, int]] = [
            (tool, count.count_text(tool.name + tool.description + tool.parameters, ENCODING)) for tool in tools
        ]
        tokens += [(message, count.count_message(message, ENCODING)) for message in loaded.messages]
        parts = [part.SerializeToString(deterministic=True) for part, _ in tokens]
        same = next(
            (at for at, (a, b) in enumerate(zip(self._before, parts, strict=False)) if a != b), len(self._before)
        )
        cached = sum(counted for _, counted in tokens[:same])
        self._before = parts
        self.tokens += loaded.tokens
        self.cost += loaded.tokens - (1 - CACHED_PRICE) * cached
