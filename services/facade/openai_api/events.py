"""A run's events as a caller of the OpenAI API sees them; `seq` is the sequence number of the run's own event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from headrace.v1 import common_pb2
from services.facade.openai_api.call_ids import CallId

BlockKind: TypeAlias = Literal["text", "reasoning"]


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The run has started."""

    seq: int
    run_id: str
    chat_id: str
    agent_key: str
    at_s: int
    """Unix seconds."""


@dataclass(frozen=True, slots=True)
class BlockStarted:
    """A block opens. A known one, again: what it had is replaced by what follows."""

    seq: int
    kind: BlockKind
    block_id: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of a block."""

    seq: int
    block_id: str
    text: str


@dataclass(frozen=True, slots=True)
class BlockEnded:
    """A block is whole."""

    seq: int
    block_id: str


@dataclass(frozen=True, slots=True)
class BlocksDropped:
    """The blocks that opened after `from_seq` were lost; what was in them is said anew, in others."""

    seq: int
    from_seq: int


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """The run waits for one of the caller's functions."""

    seq: int
    """One less than the end's, which is the run's last event: whoever has had the end has had the calls."""

    tool_id: str
    name: str
    arguments: str

    def format_id(self, run_id: str) -> str:
        """The call's id, as its caller gets it."""
        return str(CallId(run_id, self.tool_id, self.seq + 1))


@dataclass(frozen=True, slots=True)
class RunEnded:
    """Nothing more comes now; the last thing that is told."""

    seq: int

    reason: str
    """As run.complete has it; or failed, cancelled, or calls: the run waits for its caller."""

    usage: common_pb2.Usage | None = None
    """Tokens and cost of the whole run; None when the run goes on."""

    failure: common_pb2.Failure | None = None


RunEvent: TypeAlias = RunStarted | BlockStarted | TextDelta | BlockEnded | BlocksDropped | FunctionCall | RunEnded
