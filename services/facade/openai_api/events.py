"""A run's events for callers of the OpenAI API, and the output built from them; `seq` is the run event's number."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from headrace.runs.parts import Block, BlockBegun, BlockEnded, BlocksLost, TextAdded
from headrace.v1 import common_pb2
from services.facade.faces.call_ids import CallId


@dataclass(frozen=True, slots=True)
class RunStarted:
    seq: int
    run_id: str
    chat_id: str
    agent_key: str
    at_s: int
    """Unix time in seconds."""


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of one of the caller's functions, for which the run waits."""

    seq: int
    """One less than that of the end, so that a caller who received the end has all calls."""

    tool_id: str
    name: str
    arguments: str

    def format_id(self, run_id: str) -> str:
        return str(CallId(run_id, self.tool_id, self.seq + 1))


@dataclass(frozen=True, slots=True)
class RunEnded:
    seq: int

    reason: str
    """Finish reason of run.complete, or failed, cancelled, or calls if the run waits for its caller."""

    usage: common_pb2.Usage | None = None
    """Tokens and cost of the whole run; zeros while it waits for its caller, so that the caller's sums are
    correct.
    """

    failure: common_pb2.Failure | None = None
    output: str = ""
    """The answer as JSON, if an output format was requested."""


RunEvent: TypeAlias = RunStarted | BlockBegun | TextAdded | BlockEnded | BlocksLost | FunctionCall | RunEnded

TextKind: TypeAlias = Literal["text", "reasoning"]


def get_kind(block: Block) -> TextKind:
    """Return the kind of a block for the caller; a planner's text counts as reasoning."""
    return "text" if block.is_answer else "reasoning"


def make_empty(block: Block) -> Block:
    """Return the block as it was at its start."""
    return replace(block, pieces=[], is_complete=False)


class Output:
    def __init__(self) -> None:
        self.blocks: dict[str, Block] = {}
        self.calls: list[FunctionCall] = []

    def apply_event(self, event: RunEvent) -> None:
        match event:
            case BlockBegun():
                self.blocks[event.block.id] = event.block
            case BlocksLost():
                for block in event.blocks:
                    self.blocks.pop(block.id, None)
            case FunctionCall():
                self.calls.append(event)
            case _:
                pass

    def join_text(self, kind: TextKind) -> str:
        """Join the blocks of a kind with blank lines."""
        return "\n\n".join(block.text for block in self.blocks.values() if get_kind(block) == kind and block.pieces)
