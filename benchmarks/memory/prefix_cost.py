"""What requests cost where a provider keeps the beginning of the one before in its cache."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from services.runtime.tokens import count

if TYPE_CHECKING:
    from headrace.v1 import memory_pb2

CACHED_PRICE = 0.1
"""Price of a token that the provider has in its cache, in other tokens."""


@dataclass(slots=True)
class PrefixCost:
    """Adds up the requests of one conversation, in their order."""

    tokens: int = 0
    """Input tokens of all requests."""
    cost: float = 0.0
    """The same, with those that the request before had at its beginning at their price."""
    _before: list[bytes] = field(default_factory=list[bytes])
    _counts: dict[bytes, int] = field(default_factory=dict[bytes, int])

    def add(self, loaded: memory_pb2.LoadContextResponse) -> None:
        messages = [message.SerializeToString(deterministic=True) for message in loaded.messages]
        for data, message in zip(messages, loaded.messages, strict=True):
            if data not in self._counts:
                self._counts[data] = count.count_message(message, "o200k_base")
        # The tools stand before the messages: once something has left the window there are more of them.
        parts = [b"tools" if loaded.has_left else b"", *messages]
        same = next(
            (at for at, (a, b) in enumerate(zip(self._before, parts, strict=False)) if a != b), len(self._before)
        )
        cached = sum(self._counts[part] for part in parts[1:same])
        self._before = parts
        self.tokens += loaded.tokens
        self.cost += loaded.tokens - (1 - CACHED_PRICE) * cached
