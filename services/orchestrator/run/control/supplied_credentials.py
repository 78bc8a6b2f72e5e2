"""Credentials that people have supplied for a run; they exist only in the memory of its owner."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from headrace.errors import InvalidRequest
from services.runtime.rpc.call_ids import CREDENTIALS_CHARS_MAX, name_tool_credential

ROOM_CHARS = CREDENTIALS_CHARS_MAX // 2
"""Maximum characters for one run; the caller's own credentials, sent with the query, have the same allowance."""


class SuppliedCredentials:
    """The credentials of one run, shared by its scopes. An owner that takes the run over asks again."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self.asking: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Held by the call that asks for a credential; other calls wait and then use the same value."""

    @property
    def has_any(self) -> bool:
        return bool(self._values)

    def find(self, name: str) -> str:
        return self._values.get(name, "")

    def keep(self, name: str, value: str) -> None:
        """Store a credential. Raises InvalidRequest if the run's credentials would be too long together."""
        others = sum(len(name_tool_credential(key)) + len(one) for key, one in self._values.items() if key != name)
        if others + len(name_tool_credential(name)) + len(value) > ROOM_CHARS:
            raise InvalidRequest.of(
                "payload.secret", f"is too long: a run has room for {ROOM_CHARS:,} characters in all"
            )
        self._values[name] = value

    def drop(self, name: str, value: str) -> None:
        """Forget a value that was refused; a newer one is kept."""
        if self._values.get(name) == value:
            del self._values[name]

    def make_metadata(self) -> tuple[tuple[str, str], ...]:
        return tuple((name_tool_credential(name), value) for name, value in self._values.items())
