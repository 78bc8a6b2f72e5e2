from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.v1 import tools_pb2
from services.tools.interpreter.pool import InterpreterPool
from services.tools.sandbox.supervised_command import AllowBegin, begin_at_once
from services.tools.sandbox.tier import Sandbox
from services.tools.toolkit.credential import Credential
from services.tools.web.web import Web
from services.tools.workspace.workspace import Workspace, Workspaces

if TYPE_CHECKING:
    from headrace.v1.llm_pb2_grpc import LlmServiceAsyncStub


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    arguments: dict[str, Any]

    request: tools_pb2.ExecuteRequest
    """The call, with its effect key, and the model and budget of a tool that asks a model."""

    workspaces: Workspaces
    sandbox: Sandbox
    interpreters: InterpreterPool
    web: Web
    llm: LlmServiceAsyncStub

    credentials: tuple[Credential, ...] = ()
    """Of the user who asks; their values came with the call."""

    course: str = ""
    """What the tool has kept of the call when it asked a person (InputNeeded); empty: the call begins."""

    begin: AllowBegin = begin_at_once
    """Records that the call begins; awaited by tools whose `begins_itself` is true before they change anything. Raises
    Overloaded when the call may not begin."""

    @property
    def chat_id(self) -> str:
        return self.request.chat_id

    @property
    def timeout_s(self) -> float | None:
        """Limit of the call's time; None: as long as the tool allows itself."""
        return self.request.timeout_ms / 1000 if self.request.timeout_ms > 0 else None

    @property
    def short_id(self) -> str:
        """Id for file names, the same when the call is repeated."""
        return hashlib.sha256(f"{self.request.run_id}/{self.request.tool_call_id}".encode()).hexdigest()[:8]

    def open_workspace(self) -> Workspace:
        return self.workspaces.open_workspace(self.chat_id)


ContextFactory: TypeAlias = Callable[[tools_pb2.ExecuteRequest, dict[str, Any]], ToolContext]
