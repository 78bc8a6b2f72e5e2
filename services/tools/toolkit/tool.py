"""A tool, the context of a call, its arguments and the user's credentials for it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from headrace.v1 import agent_pb2, common_pb2, tools_pb2
from services.runtime.formats.json_schema import CompiledSchema, describe_violations, find_schema_problem, load_json
from services.runtime.rpc.call_ids import find_mcp_credential, find_tool_credential
from services.tools.errors import ToolFailed
from services.tools.interpreter.pool import InterpreterPool
from services.tools.sandbox.command import AllowBegin, begin_at_once
from services.tools.sandbox.tiers import Sandbox
from services.tools.web.web import Web
from services.tools.workspace.workspace import Workspace, Workspaces, make_resource_url

if TYPE_CHECKING:
    from headrace.v1.llm_pb2_grpc import LlmServiceAsyncStub

Effect: TypeAlias = Literal["read", "idempotent", "once"]
Tier: TypeAlias = Literal["core", "enabled", "discovered"]
Kind: TypeAlias = Literal["backend", "action", "frontend"]
Need: TypeAlias = Literal["sandbox", "search", "model"]

Approval: TypeAlias = Literal["allow", "ask", "deny"]

RESULT_CHARS_MAX = 30_000

SHOWN_MAX = 8
"""Maximum pictures and audio of a result that the model sees."""

ARGUMENT_BYTES_MAX = 4 * 1024 * 1024
"""Maximum size of a call's arguments, the same as the facade's for a message."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A secret of the requester, as declared in tools.yaml."""

    name: str
    description: str
    obtain: str = ""
    variable: str = ""
    """Environment variable of a command; empty for the credential of an MCP server."""

    scheme: str = ""
    """Word before it in the Authorization header of an MCP server."""

    answerers: common_pb2.Answerers | None = None
    """Users who may supply it; None: the requester."""

    def make_result(self, problem: str) -> tools_pb2.ToolDelta:
        """Return the result of a call that needs it from the user; `problem` is `missing` or `refused`."""
        need = common_pb2.CredentialNeed(
            name=self.name,
            description=self.description,
            obtain=self.obtain or None,
            problem=problem,
            answerers=self.answerers,
        )
        text = f"credential {self.name!r} is {problem}"
        return tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=False, result=text, needs=need))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    arguments: dict[str, Any]

    request: tools_pb2.ExecuteRequest
    """The call, with its effect key, and the model and budget if the tool calls a model."""

    workspaces: Workspaces
    sandbox: Sandbox
    interpreters: InterpreterPool
    web: Web
    llm: LlmServiceAsyncStub

    env: Mapping[str, str]
    """Variables that definitions refer to."""

    credentials: tuple[Credential, ...] = ()
    """Credentials of the requester; their values came with the call."""

    resume_state: str = ""
    """State the tool saved when it asked a person (InputNeeded); empty on the first attempt."""

    begin: AllowBegin = begin_at_once
    """Records that the call begins; tools with `begins_itself` must await it before they change anything. Raises
    Overloaded if the call may not begin."""

    @property
    def chat_id(self) -> str:
        return self.request.chat_id

    @property
    def timeout_s(self) -> float | None:
        """Time limit of the call in seconds; None: the tool's own limit."""
        return self.request.timeout_ms / 1000 if self.request.timeout_ms > 0 else None

    @property
    def short_id(self) -> str:
        """Id for file names, the same if the call is repeated."""
        return hashlib.sha256(f"{self.request.run_id}/{self.request.tool_call_id}".encode()).hexdigest()[:8]

    def open_workspace(self) -> Workspace:
        return self.workspaces.open_workspace(self.chat_id)

    def make_artifact(self, id_suffix: str, path: str, mime_type: str, size_bytes: int) -> agent_pb2.ArtifactPublish:
        """Return the event that publishes a file of the workspace; `id_suffix` makes its id unique in the chat."""
        return agent_pb2.ArtifactPublish(
            artifact_id=f"artifact_{id_suffix}",
            run_id=self.request.run_id,
            name=path.rpartition("/")[2],
            mime_type=mime_type,
            size_bytes=size_bytes,
            url=make_resource_url(self.chat_id, path),
        )


ContextFactory: TypeAlias = Callable[[tools_pb2.ExecuteRequest, dict[str, Any]], ToolContext]

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
    """JSON Schema, as text, of submissions; empty: any JSON."""


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
    """Set for tools that the front end performs; their `execute` is `answer_ok`."""

    begins_itself: bool = False
    """Whether `execute` awaits `context.begin` itself, late, so that few interrupted calls have started; other calls
    count as started before it."""

    approval: Approval | None = None
    """Whether a person must approve calls; None: only the approval rules decide."""

    answerers: common_pb2.Answerers | None = None
    """Users who may answer if the tool makes a run wait for a person; None: approvals.yaml decides."""

    credentials: tuple[Credential, ...] = ()
    """Credentials that it needs from the requester."""

    server: str = ""
    """Name of the MCP server that offers it; empty for other tools."""

    is_per_user: bool = False
    """Whether the server lists its tools per user."""

    may_ask: bool = False
    """Whether it may ask a person during a call: its calls then leave records, even if it only reads."""

    always_available: bool = False
    category: str = ""
    tags: tuple[str, ...] = ()
    unavailable: str = ""
    """Why the tool cannot be used now; empty if it can."""

    @property
    def kind(self) -> Kind:
        return "backend" if self.front_end is None else self.front_end.kind


def describe_parameters(properties: dict[str, Any], *required: str) -> str:
    """Return the JSON Schema of a call's arguments: an object with these properties and no others."""
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return json.dumps(schema | ({"required": required} if required else {}) | {"additionalProperties": False})


def make_output(stream: str, text: str) -> tools_pb2.ToolDelta:
    return tools_pb2.ToolDelta(output=tools_pb2.ToolOutputDelta(stream=stream, delta=text))


def make_result(text: str, *, ok: bool = True, shown: Sequence[str] = ()) -> tools_pb2.ToolDelta:
    """Return a result with a text of any length; the model sees the media at the first paths of `shown`."""
    outcome = tools_pb2.ToolOutcome(ok=ok, result=text, shown_paths=shown[:SHOWN_MAX])
    return tools_pb2.ToolDelta(result=outcome)


async def answer_ok(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
    """Return ok: nothing is left to do once the arguments are valid."""
    del context
    yield make_result("OK")


def find_missing(tool: Tool) -> Credential | None:
    """Return the first credential that the call needs but does not have; None if it has all."""
    if tool.server and find_mcp_credential(tool.server):
        return None
    return next((one for one in tool.credentials if not find_tool_credential(one.name)), None)


def find_authorization(server: str, credentials: tuple[Credential, ...]) -> str:
    """Return the user's Authorization header for an MCP server; empty if the user has none."""
    for one in credentials:
        if value := find_tool_credential(one.name):
            return f"{one.scheme} {value}".strip()
    return find_mcp_credential(server)


def check_schema(schema: str) -> None:
    """Raise ValueError if a text is not a JSON Schema."""
    if problem := find_schema_problem(schema):
        raise ValueError(problem)


def parse_arguments(text: str, schemas: Iterable[CompiledSchema]) -> dict[str, Any]:
    """Parse and validate a call's arguments; integers of any size stay integers, and an empty text means none.

    Raises:
        ToolFailed: They do not match the schemas.
    """
    if len(text) > ARGUMENT_BYTES_MAX:
        raise ToolFailed(f"invalid arguments: $: longer than {ARGUMENT_BYTES_MAX} characters")
    try:
        value = load_json(text or "{}")
    except RecursionError:
        raise ToolFailed("invalid arguments: $: nested too deeply") from None
    except UnicodeEncodeError:
        raise ToolFailed("invalid arguments: $: half a surrogate pair is not a character") from None
    except ValueError as error:
        raise ToolFailed(f"invalid arguments: $: not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ToolFailed("invalid arguments: $: must be a JSON object")
    if problem := describe_violations(value, *schemas):
        raise ToolFailed(f"invalid arguments: {problem}")
    return value
