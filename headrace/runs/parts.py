"""The parts of a run, and what an event changes of them.

A snapshot makes several changes; each other event makes one, or none. `seq` is the event's number. Only the last change
of a snapshot has it: the others have the number before, so that a reader with half of the block gets all of it again.
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
"""The `tool_api` of a function that the run's caller carries out."""


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
    """The tool's type: backend, frontend or orchestrator."""
    tool_api: str = ""
    is_answer: bool = False
    """Whether a text is the run's answer or a part of it, unless a call of the run itself follows."""
    pieces: list[str] = field(default_factory=list[str])
    is_complete: bool = False
    """Whether the text is whole; a call may still run."""
    params: str = ""
    """A call's final arguments as JSON; empty before, or if invalid."""
    result: str | None = None
    """A call's result as the model has it; None before."""
    ok: bool = True
    """False if a tool failed or did not run."""
    size_chars: int = 0
    """Length of the text so far."""
    read_chars: int = 0
    """The most characters that the text has had: what a block that begins again repeats."""

    @property
    def text(self) -> str:
        """The text so far; for a call, its arguments."""
        return "".join(self.pieces)

    @property
    def arguments(self) -> str:
        """A call's arguments: the final ones, or as far as the model has written them."""
        return self.params or self.text

    @property
    def is_call(self) -> bool:
        return self.kind in ("tool", "action")


@dataclass(frozen=True, slots=True)
class Gate:
    """Something that the run waits for until a person answers."""

    open: agent_pb2.GateOpen
    scope: Scope


@dataclass(slots=True)
class Task:
    id: str
    subagent_id: str
    """The sub-agent with the plan; empty for the run's own."""
    name: str = ""
    description: str = ""
    status: TaskStatus = "started"
    summary: str = ""
    error: common_pb2.Failure | None = None


@dataclass(slots=True)
class Subagent:
    id: str
    parent_id: str
    """The calling run or sub-agent."""
    task_id: str
    """The calling plan task, if any."""
    agent_key: str
    depth: int
    """Level below the run, from 1."""
    goal: str
    ok: bool | None = None
    """Whether it has a result; None while it works."""
    summary: str = ""


@dataclass(frozen=True, slots=True)
class BlockBegun:
    seq: int
    block: Block
    is_again: bool
    """Whether the block is known: its text is repeated from the beginning."""


class TextAdded(NamedTuple):
    # A tuple, not a frozen dataclass: one is made per delta, and a tuple costs a third.

    seq: int
    block: Block
    text: str
    new: str
    """The end of `text` that the block has not had before it began again."""


@dataclass(frozen=True, slots=True)
class BlockEnded:
    seq: int
    block: Block


@dataclass(frozen=True, slots=True)
class CallAnswered:
    block: Block


@dataclass(frozen=True, slots=True)
class BlocksLost:
    """Blocks of a scope that are dropped; others come in their place."""

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
    """Unix time."""


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
