"""A run's events for a caller of the OpenAI API; `seq` is that of the run's own event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from headrace.v1 import common_pb2
from services.facade.faces.call_ids import CallId

BlockKind: TypeAlias = Literal["text", "reasoning"]


@dataclass(frozen=True, slots=True)
class RunStarted:
    seq: int
    run_id: str
    chat_id: str
    agent_key: str
    at_s: int
    """Unix time in seconds."""


@dataclass(frozen=True, slots=True)
class BlockStarted:
    """A block opens; for a known one, new content replaces the old."""

    seq: int
    kind: BlockKind
    block_id: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    seq: int
    block_id: str
    text: str


@dataclass(frozen=True, slots=True)
class BlockEnded:
    seq: int
    block_id: str


@dataclass(frozen=True, slots=True)
class BlocksDropped:
    """Blocks opened after `from_seq` were lost; new ones replace them."""

    seq: int
    from_seq: int


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """The run waits for one of the caller's functions."""

    seq: int
    """One less than the end's, so that a caller who received the end has all calls."""

    tool_id: str
    name: str
    arguments: str

    def format_id(self, run_id: str) -> str:
        return str(CallId(run_id, self.tool_id, self.seq + 1))


@dataclass(frozen=True, slots=True)
class RunEnded:
    seq: int

    reason: str
    """The reason of run.complete, or failed, cancelled, or calls when the run waits for its caller."""

    usage: common_pb2.Usage | None = None
    """Tokens and cost of the whole run; zeros while it waits for its caller, whose sums are then right."""

    failure: common_pb2.Failure | None = None
    output: str = ""
    """The answer as JSON, where it had to have a form."""


RunEvent: TypeAlias = RunStarted | BlockStarted | TextDelta | BlockEnded | BlocksDropped | FunctionCall | RunEnded
