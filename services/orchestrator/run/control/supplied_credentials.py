"""Credentials that people have supplied for a run. They are in the memory of its owner, and nowhere else."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from headrace.errors import InvalidRequest
from services.runtime.rpc.call_ids import CREDENTIALS_CHARS_MAX, name_tool_credential

ROOM_CHARS = CREDENTIALS_CHARS_MAX // 2
"""Size of all of a run; the caller's own, which came with the query, have as much room beside them."""


class SuppliedCredentials:
    """Belongs to one run; its scopes share it. A run that another process takes over asks again."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self.asking: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Held by the call that asks for a credential; the others then have it too."""

    @property
    def has_any(self) -> bool:
        return bool(self._values)

    def find(self, name: str) -> str:
        return self._values.get(name, "")

    def keep(self, name: str, value: str) -> None:
        """Raises InvalidRequest where the run's credentials would be too long together."""
        others = sum(len(name_tool_credential(key)) + len(one) for key, one in self._values.items() if key != name)
        if others + len(name_tool_credential(name)) + len(value) > ROOM_CHARS:
            raise InvalidRequest.of(
                "payload.secret", f"is too long: a run has room for {ROOM_CHARS:,} characters in all"
            )
        self._values[name] = value

    def drop(self, name: str, value: str) -> None:
        """Forget a value that is of no use; one that has come meanwhile stays."""
        if self._values.get(name) == value:
            del self._values[name]

    def make_metadata(self) -> tuple[tuple[str, str], ...]:
        return tuple((name_tool_credential(name), value) for name, value in self._values.items())
