"""The parts of a run, and the changes that events make to them.

A snapshot makes several changes, any other event one or none. `seq` is the event's number, but within a
snapshot only the last change has it. The others have the number before, so that a reader with half of the block
gets all of it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from headrace.v1 import agent_pb2, common_pb2

BlockKind: TypeAlias = Literal["content", "reasoning", "tool", "action"]
TaskStatus: TypeAlias = Literal["started", "completed", "canceled", "failed"]
Scope: TypeAlias = tuple[str, str]
"""Ids of sub-agent and plan task; both empty for the run itself."""

RUN: Scope = ("", "")

CLIENT = "client"
"""Value of `tool_api` for a function executed by the run's caller."""


@dataclass(slots=True)
class Block:
    """A text of answer or reasoning, or a call of a tool or action."""

    kind: BlockKind
    id: str
    seq: int
    """Sequence number of the opening event."""
    scope: Scope
    name: str = ""
    tool_type: str = ""
    """Type of the tool: backend, frontend or orchestrator."""
    tool_api: str = ""
    is_answer: bool = False
    """Whether a text is part of the run's answer, unless a call of the run itself follows it."""
    pieces: list[str] = field(default_factory=list[str])
    is_complete: bool = False
    """Whether the text is complete; a call may still be running."""
    params: str = ""
    """Final arguments of a call as JSON; empty until they are complete, or if they are invalid."""
    result: str | None = None
    """Result of a call as the model receives it; None before."""
    ok: bool = True
    """False if a tool failed or did not run."""
    size_chars: int = 0
    """Length of the text so far."""
    read_chars: int = 0
    """Greatest length so far; a block that starts again repeats these characters."""

    @property
    def text(self) -> str:
        """Text so far; for a call, its arguments."""
        return "".join(self.pieces)

    @property
    def arguments(self) -> str:
        """Arguments of a call: the final ones, or those the model has written so far."""
        return self.params or self.text

    @property
    def is_call(self) -> bool:
        return self.kind in ("tool", "action")


@dataclass(frozen=True, slots=True)
class Gate:
    """A pause of the run until a person answers."""

    open: agent_pb2.GateOpen
    scope: Scope


@dataclass(slots=True)
class Task:
    id: str
    subagent_id: str
    """Sub-agent that owns the plan; empty for the run itself."""
    name: str = ""
    description: str = ""
    status: TaskStatus = "started"
    summary: str = ""
    error: common_pb2.Failure | None = None


@dataclass(slots=True)
class Subagent:
    id: str
    parent_id: str
    """Run or sub-agent that called it."""
    task_id: str
    """Plan task that called it, if any."""
    agent_key: str
    depth: int
    """Level below the run, from 1."""
    goal: str
    ok: bool | None = None
    """Whether it has a result; None while it is working."""
    summary: str = ""


@dataclass(frozen=True, slots=True)
class BlockBegun:
    seq: int
    block: Block
    is_again: bool
    """Whether the block is known; its text is then repeated from the beginning."""


class TextAdded(NamedTuple):
    # A tuple, not a frozen dataclass: one is made per delta, and a tuple costs a third.

    seq: int
    block: Block
    text: str
    new: str
    """Part of `text` that the block did not have before it started again."""


@dataclass(frozen=True, slots=True)
class BlockEnded:
    seq: int
    block: Block


@dataclass(frozen=True, slots=True)
class CallAnswered:
    block: Block


@dataclass(frozen=True, slots=True)
class BlocksLost:
    """Blocks of a scope that are dropped and will be replaced."""

    seq: int
    blocks: list[Block]
    scope: Scope


@dataclass(frozen=True, slots=True)
class GateOpened:
    gate: Gate


@dataclass(frozen=True, slots=True)
class GateClosed:
    gate_id: str


@dataclass(frozen=True, slots=True)
class FilePublished:
    file: agent_pb2.ArtifactPublish


@dataclass(frozen=True, slots=True)
class RunBegun:
    start: agent_pb2.RunStart
    at_ms: int
    """Unix time in milliseconds."""


@dataclass(frozen=True, slots=True)
class RunEnded:
    end: agent_pb2.AgentDelta
    """The terminal event."""


Change: TypeAlias = (
    BlockBegun
    | TextAdded
    | BlockEnded
    | CallAnswered
    | BlocksLost
    | GateOpened
    | GateClosed
    | FilePublished
    | RunBegun
    | RunEnded
)

Changes: TypeAlias = tuple[Change, ...]
