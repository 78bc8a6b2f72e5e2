"""What a run has said, as AG-UI's messages: for snapshots, which take back what was lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from headrace.fold import Scope

MessageKind: TypeAlias = Literal["text", "reasoning", "call"]


@dataclass(slots=True)
class Message:
    kind: MessageKind
    id: str
    """As the client has it."""

    seq: int
    scope: Scope
    head: bytes
    """A frame of a piece, up to the piece."""

    name: str = ""
    pieces: list[str] = field(default_factory=list[str])
    result: str | None = None
    """A call's."""

    is_own: bool = False
    """Whether a call is one of a function of the caller, for whose result the run waits."""

    is_ended: bool = False
    tool_type: str = ""

    @property
    def result_id(self) -> str:
        return f"{self.id}_result"

    def build(self) -> list[dict[str, Any]]:
        """Return the message, and behind a call that has one its result."""
        text, owner = "".join(self.pieces), {"subagentRunId": self.scope[0]} if self.scope[0] else {}
        if self.kind != "call":
            role = "assistant" if self.kind == "text" else "reasoning"
            return [{"id": self.id, "role": role, "content": text, **owner}]
        call = {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": text}}
        built: list[dict[str, Any]] = [{"id": self.id, "role": "assistant", "toolCalls": [call], **owner}]
        if self.result is not None:
            result = {"id": self.result_id, "role": "tool", "toolCallId": self.id, "content": self.result}
            built.append({**result, **owner})
        return built
