"""What a tool is: a definition that models see, and a function that streams what it does."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from headrace.v1 import tools_pb2
from services.tools.sandbox.selftest import Sandbox
from services.tools.workspace import Workspaces

if TYPE_CHECKING:
    from headrace.v1.llm_pb2_grpc import LlmServiceAsyncStub

Effect: TypeAlias = Literal["read", "idempotent", "once"]
Tier: TypeAlias = Literal["core", "enabled", "discovered"]

RESULT_CHARS_MAX = 30_000
"""What a model gets of one result (tools.md)."""

HEAD_CHARS = 20_000
"""Kept from the start of a longer result; the rest of the room shows its end, where errors stand."""


class ToolFailed(Exception):
    """The tool cannot do it; the text tells the model why. Becomes a result with ok false and goes no further."""


@dataclass(frozen=True, slots=True)
class Call:
    """One execution, its arguments already valid."""

    arguments: dict[str, Any]
    chat_id: str
    workspaces: Workspaces
    sandbox: Sandbox
    timeout_s: float | None
    """Greatest wall-clock time; None: the tool's own."""

    request: tools_pb2.ExecuteRequest
    """As it came: run, call, effect key, and the model and budget of a tool that asks one."""

    llm: LlmServiceAsyncStub


Execute: TypeAlias = Callable[[Call], AsyncGenerator[tools_pb2.ToolDelta]]
"""Streams output and, last, exactly one result; or raises ToolFailed instead of it."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool in force."""

    name: str
    description: str
    parameters: str
    """JSON Schema of the arguments, as JSON text."""

    effect: Effect
    execute: Execute
    tier: Tier = "core"
    after_call_hint: str = ""
    is_command: bool = False
    """It runs a command and so needs a sandbox."""


def output(stream: str, text: str) -> tools_pb2.ToolDelta:
    return tools_pb2.ToolDelta(output=tools_pb2.ToolOutputDelta(stream=stream, delta=text))


def result(text: str, *, ok: bool = True) -> tools_pb2.ToolDelta:
    return tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=ok, result=bounded(text)))


def bounded(text: str) -> str:
    """`text`, or its start and its end around a note with its full size, RESULT_CHARS_MAX characters at most."""
    if len(text) <= RESULT_CHARS_MAX:
        return text
    note = f"\n[… cut here: {len(text)} characters in all; this is the start and the end …]\n"
    return text[:HEAD_CHARS] + note + text[HEAD_CHARS + len(note) - RESULT_CHARS_MAX :]
