"""A run's output as AG-UI messages, used in the snapshots that retract lost text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from headrace.runs.parts import CLIENT, Block

MessageKind: TypeAlias = Literal["text", "reasoning", "call"]


@dataclass(frozen=True, slots=True)
class Message:
    block: Block
    kind: MessageKind
    id: str
    """Id that the client knows."""

    head: bytes
    """Frame of a piece, up to the text of the piece."""

    @property
    def result_id(self) -> str:
        return f"{self.id}_result"

    @property
    def is_own(self) -> bool:
        """Whether this is a call of one of the caller's functions; the run waits for the caller's result."""
        return self.block.tool_api == CLIENT

    @property
    def text(self) -> str:
        return self.block.text or self.block.params

    def build(self) -> list[dict[str, Any]]:
        """Return the message, followed by the result if it is a call that has one."""
        block = self.block
        owner = {"subagentRunId": block.scope[0]} if block.scope[0] else {}
        if self.kind != "call":
            role = "assistant" if self.kind == "text" else "reasoning"
            return [{"id": self.id, "role": role, "content": self.text, **owner}]
        call = {"id": self.id, "type": "function", "function": {"name": block.name, "arguments": self.text}}
        built: list[dict[str, Any]] = [{"id": self.id, "role": "assistant", "toolCalls": [call], **owner}]
        if block.result is not None and not self.is_own:
            result = {"id": self.result_id, "role": "tool", "toolCallId": self.id, "content": block.result}
            built.append({**result, **owner})
        return built
