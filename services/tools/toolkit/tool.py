"""What a tool is: a definition that models see, and a function that streams what it does."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from headrace.v1 import tools_pb2
from services.tools.sandbox.tier import Sandbox
from services.tools.workspace.workspace import Workspaces

if TYPE_CHECKING:
    from headrace.v1.llm_pb2_grpc import LlmServiceAsyncStub
    from services.tools.interpreter.pool import Interpreters
    from services.tools.web.web import Web

Effect: TypeAlias = Literal["read", "idempotent", "once"]
Tier: TypeAlias = Literal["core", "enabled", "discovered"]
Kind: TypeAlias = Literal["backend", "action", "frontend"]
Approval: TypeAlias = Literal["allow", "ask", "deny"]

RESULT_CHARS_MAX = 30_000
"""What a model gets of one result (tools.md)."""


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
    web: Web
    interpreters: Interpreters


Execute: TypeAlias = Callable[[Call], AsyncGenerator[tools_pb2.ToolDelta]]
"""Streams output and, last, exactly one result; or raises ToolFailed instead of it. Raises Overloaded only before it
has done anything: the call may then be tried again, whatever its effect."""


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

    needs_search: bool = False
    """It uses the search endpoint, which must be configured."""

    asks_model: bool = False
    """It asks the agent's model, within the budget that its call comes with."""

    kind: Kind = "backend"
    """What an action or a frontend tool does, the front end does; its `execute` is `answer_ok`."""

    approval: Approval | None = None
    """Whether a person is asked before it runs; None: the approval rules decide alone."""

    viewport_key: str = ""
    """Frontend tools: the view to show."""

    timeout_ms: int | None = None
    """Frontend tools: how long a submit is waited for; None: the default."""

    always_available: bool = False
    category: str = ""
    tags: tuple[str, ...] = ()
    unavailable: str = ""
    """Why it cannot be used now; empty when it can."""


def output(stream: str, text: str) -> tools_pb2.ToolDelta:
    return tools_pb2.ToolDelta(output=tools_pb2.ToolOutputDelta(stream=stream, delta=text))


def result(text: str, *, ok: bool = True) -> tools_pb2.ToolDelta:
    """The result, whole; what of it the model gets is decided in one place, results.py."""
    return tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=ok, result=text))


async def answer_ok(call: Call) -> AsyncGenerator[tools_pb2.ToolDelta]:
    """Execute of a tool whose effect is the front end's: there is nothing left to do once the arguments are valid."""
    del call
    yield result("OK")
