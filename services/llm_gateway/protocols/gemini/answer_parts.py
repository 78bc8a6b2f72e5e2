"""The parts of an answer in their order, with the signatures that the provider wants back at the very same parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from services.llm_gateway.protocols.common.answer_order import CALL, CHARS

if TYPE_CHECKING:
    from services.llm_gateway.protocols.gemini.frames import Part

KIND: Final = "parts"

SIGNATURE: Final = "thoughtSignature"

GIVEN_ID: Final = "id"
"""Of a call: the provider's own id, which it wants to see again if it has given one."""


class AnswerParts:
    def __init__(self) -> None:
        self._parts: list[dict[str, Any]] = []
        self._is_needed = False

    def add_text(self, text: str, part: Part) -> None:
        signature = _get_signature(part)
        last = self._parts[-1] if self._parts else {}
        if CHARS in last and SIGNATURE not in last and not signature:
            last[CHARS] += len(text)
        else:
            self._add({CHARS: len(text)} | signature)

    def add_thought(self, part: Part) -> None:
        """Keep a thought that has a signature; the others are for people."""
        if part.thought_signature:
            self._add({"text": part.text or "", "thought": True} | _get_signature(part))

    def add_call(self, given_id: str, part: Part) -> None:
        self._add({CALL: True} | ({GIVEN_ID: given_id} if given_id else {}) | _get_signature(part))

    def add_opaque(self, part: Part) -> None:
        """Keep the parts of tools that run at the provider."""
        fields = {"executableCode": part.executable_code, "codeExecutionResult": part.code_execution_result}
        kept = {name: orjson.loads(bytes(raw)) for name, raw in fields.items() if raw}
        if kept or part.thought_signature:
            self._is_needed = True
            self._add(kept or {CHARS: 0} | _get_signature(part))

    def _add(self, part: dict[str, Any]) -> None:
        self._is_needed = self._is_needed or SIGNATURE in part or GIVEN_ID in part
        self._parts.append(part)

    def build_items(self) -> list[dict[str, Any]]:
        """Return the parts; none where nothing but texts and calls has come."""
        return self._parts if self._is_needed else []


def _get_signature(part: Part) -> dict[str, Any]:
    return {SIGNATURE: part.thought_signature} if part.thought_signature else {}
