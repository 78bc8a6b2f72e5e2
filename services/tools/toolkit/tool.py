from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from headrace.v1 import common_pb2, tools_pb2
from services.tools.toolkit.context import ToolContext
from services.tools.toolkit.credential import Credential

Effect: TypeAlias = Literal["read", "idempotent", "once"]
Tier: TypeAlias = Literal["core", "enabled", "discovered"]
Kind: TypeAlias = Literal["backend", "action", "frontend"]
Need: TypeAlias = Literal["sandbox", "search", "model"]

Approval: TypeAlias = Literal["allow", "ask", "deny"]

RESULT_CHARS_MAX = 30_000


Execute: TypeAlias = Callable[[ToolContext], AsyncGenerator[tools_pb2.ToolDelta]]
"""Streams output and, last, exactly one result, or raises ToolFailed instead. Raises Overloaded only before it has done
anything, so that the call may be tried again."""


@dataclass(frozen=True, slots=True)
class FrontEnd:
    kind: Literal["action", "frontend"]
    viewport_key: str = ""
    """View to show; empty for an action."""

    timeout_ms: int | None = None
    """How long a frontend tool waits for a submit; None: the default."""

    result_schema: str = ""
    """JSON Schema, as text, of what may be submitted; empty: any JSON."""


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str
    parameters: str
    """JSON Schema as text."""

    effect: Effect
    execute: Execute
    tier: Tier = "core"
    after_call_hint: str = ""
    needs: frozenset[Need] = frozenset()
    front_end: FrontEnd | None = None
    """Set for tools that the front end carries out; their `execute` is `answer_ok`."""

    begins_itself: bool = False
    """Whether `execute` awaits `context.begin`, late, so that little that was cut off has begun; other calls count as
    begun before it."""

    approval: Approval | None = None
    """Whether a person is asked before it runs; None: the approval rules decide alone."""

    answerers: common_pb2.Answerers | None = None
    """Who may answer where a run waits for a person with it; None: as approvals.yaml says."""

    credentials: tuple[Credential, ...] = ()
    """What it needs of the user who asks."""

    server: str = ""
    """The MCP server that it is of."""

    is_per_user: bool = False
    """Whether the server lists its tools for each user apart."""

    may_ask: bool = False
    """Whether it may ask a person while it runs: its calls leave records, also where it only reads."""

    always_available: bool = False
    category: str = ""
    tags: tuple[str, ...] = ()
    unavailable: str = ""
    """Reason why the tool cannot be used now; empty when it can."""

    @property
    def kind(self) -> Kind:
        return "backend" if self.front_end is None else self.front_end.kind


def make_output(stream: str, text: str) -> tools_pb2.ToolDelta:
    return tools_pb2.ToolDelta(output=tools_pb2.ToolOutputDelta(stream=stream, delta=text))


SHOWN_MAX = 8
"""Pictures and sounds of a result that its model is shown."""


def make_result(text: str, *, ok: bool = True, shown: Sequence[str] = ()) -> tools_pb2.ToolDelta:
    """Makes a result with a text of any length; the model is shown the media at the first paths of `shown`."""
    outcome = tools_pb2.ToolOutcome(ok=ok, result=text, shown_paths=shown[:SHOWN_MAX])
    return tools_pb2.ToolDelta(result=outcome)


async def answer_ok(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
    """Answers ok: nothing is left to do once the arguments are valid."""
    del context
    yield make_result("OK")
