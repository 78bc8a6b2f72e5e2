"""Tool-call ids unique in a conversation."""

from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class CallIds:
    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def make_unique(self, given_id: str) -> str:
        """Return the provider's id, or ours when it is missing or repeated."""
        unique = given_id if given_id and given_id not in self._taken else f"call_{token_hex(8)}"
        self._taken.add(unique)
        return unique
