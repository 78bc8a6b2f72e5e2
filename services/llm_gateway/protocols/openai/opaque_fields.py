"""Fields that a provider adds to calls and messages, and wants back unchanged with the next request.

Gemini 3 refuses a call without its `extra_content`
(https://ai.google.dev/gemini-api/docs/thought-signatures, 2026-11).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from services.llm_gateway.protocols.openai.frames import CallPart, Delta

CALL_KIND: Final = "call_fields"
MESSAGE_KIND: Final = "message_fields"

AT: Final = "at"
"""A call's place among those of its message, from 0."""

_CALL_FIELDS = ("extra_content", "provider_specific_fields")


class OpaqueFields:
    def __init__(self) -> None:
        self._by_call: dict[int, dict[str, Any]] = {}
        self._message: dict[str, Any] = {}

    def add_call_fields(self, index: int | None, part: CallPart) -> None:
        """Keep the fields of a call's fragment under the call's place in the answer, as ids may change on the way."""
        for name in _CALL_FIELDS:
            if index is not None and (value := _decode(getattr(part, name))):
                self._by_call.setdefault(index, {AT: index})[name] = value

    def add_message_fields(self, delta: Delta) -> None:
        if value := _decode(delta.extra_content):
            self._message["extra_content"] = value

    def build_state(self) -> dict[str, list[dict[str, Any]]]:
        """Return the fields by kind, without empty kinds."""
        kinds = {CALL_KIND: [*self._by_call.values()], MESSAGE_KIND: [self._message] if self._message else []}
        return {kind: items for kind, items in kinds.items() if items}


def _decode(raw: Any) -> Any:
    return orjson.loads(bytes(raw)) if raw else None
