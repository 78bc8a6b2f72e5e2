"""A tool call that a model asked for, and the events of its block: a tool's, or an action's."""

from __future__ import annotations

from dataclasses import dataclass, field

import orjson

from headrace.v1 import agent_pb2, llm_pb2, memory_pb2, tools_pb2
from services.orchestrator import ids

CLIENT = "client"
"""The tier and the tool_api of functions that the caller of a query carries out itself."""

FRONTEND_WAIT_MS = 300_000
"""Time to wait for a person where a tool sets none."""


@dataclass(slots=True)
class Call:
    """A tool call from its first fragment to its result. Used by the run's tasks alone."""

    call_id: str
    """The model's own id, made unique; it pairs the call with its result in requests."""

    tool_id: str
    """The id in events: the call_id for a backend tool, an id of ours for frontend tools and actions."""

    name: str
    tool: tools_pb2.Tool | None
    """None when the model may not call a tool of this name."""

    first_seq: int = 0
    started_at: int = 0
    pieces: list[str] = field(default_factory=list[str])
    ended: bool = False
    params: str = ""
    """The arguments with templates resolved or a person's edit; empty when they are as the model wrote them."""

    siblings: int = 1
    """Number of calls of the answer that run together and share what is left of the budget."""

    is_resumed: bool = False
    """True when an earlier owner may have started it; its effect decides whether it runs."""

    waits_since: int = 0
    """When an earlier owner began to wait for a person, in Unix milliseconds; 0 for never."""

    asked: int = 0
    """Number of approvals asked about it."""

    problem: str = ""
    """Why the call cannot run as it was written; empty when it can."""

    @property
    def kind(self) -> str:
        return self.tool.kind if self.tool is not None else "backend"

    @property
    def is_action(self) -> bool:
        return self.kind == "action"

    @property
    def arguments(self) -> str:
        """JSON text as the model wrote it; no text means an empty object."""
        return "".join(self.pieces) or "{}"

    @property
    def effective(self) -> str:
        """The arguments to run with."""
        return self.params or self.arguments

    @property
    def is_whole(self) -> bool:
        """Whether the arguments are a JSON object, and not the beginning of one that was cut."""
        try:
            return isinstance(orjson.loads(self.arguments), dict)
        except ValueError:
            return False

    @property
    def wait_left_ms(self) -> int:
        """Time that a frontend tool still waits for a person."""
        waited_ms = ids.now_ms() - self.waits_since if self.waits_since else 0
        return max(0, self.timeout_ms - waited_ms)

    @property
    def timeout_ms(self) -> int:
        """Time that a frontend tool waits for a person."""
        return self.tool.timeout_ms if self.tool is not None and self.tool.timeout_ms > 0 else FRONTEND_WAIT_MS

    def keep_in(self, piece: memory_pb2.LogMessage) -> None:
        """Put the event id on the log message of the call or its result."""
        if self.is_action:
            piece.action_id = self.tool_id
        else:
            piece.tool_id = self.tool_id


def begin(call_id: str, name: str, tool: tools_pb2.Tool | None) -> Call:
    """Make a call of `tool` with the event id of its kind."""
    if tool is not None and tool.kind == "frontend":
        return Call(call_id, ids.new_frontend_id(), name, tool)
    if tool is not None and tool.kind == "action":
        return Call(call_id, ids.new_action_id(), name, tool)
    return Call(call_id, call_id, name, tool)


def recalled(asked: llm_pb2.ToolCall, piece: memory_pb2.LogMessage, tool: tools_pb2.Tool | None) -> Call:
    """Restore the call that an earlier owner logged with `piece`."""
    call = Call(asked.id, piece.action_id or piece.tool_id or asked.id, asked.name, tool)
    call.pieces = [] if asked.arguments == "{}" else [asked.arguments]
    call.params, call.started_at = piece.tool_params, piece.timing.started_at
    call.ended = call.is_resumed = True
    call.waits_since = piece.timing.ended_at
    return call


def start_event(call: Call, run_id: str) -> agent_pb2.ToolStart | agent_pb2.ActionStart:
    tool = call.tool
    description = tool.description if tool is not None and tool.description else None
    if call.is_action:
        return agent_pb2.ActionStart(
            action_id=call.tool_id, run_id=run_id, action_name=call.name, description=description
        )
    start = agent_pb2.ToolStart(tool_id=call.tool_id, run_id=run_id, tool_name=call.name, tool_type="backend")
    if call.kind == "own":
        start.tool_type = "orchestrator"
    if tool is not None and tool.kind == "frontend":
        start.tool_type = "frontend"
        if tool.tier == CLIENT:
            start.tool_api = CLIENT
        else:
            start.viewport_key = tool.viewport_key or tool.name
        start.tool_timeout = call.timeout_ms
        if description is not None:
            start.description = description
    return start


def args_event(call: Call, delta: str, chunk_index: int) -> agent_pb2.ToolArgs | agent_pb2.ActionArgs:
    if call.is_action:
        return agent_pb2.ActionArgs(action_id=call.tool_id, delta=delta)
    return agent_pb2.ToolArgs(tool_id=call.tool_id, delta=delta, chunk_index=chunk_index)


def end_event(call: Call) -> agent_pb2.ToolEnd | agent_pb2.ActionEnd:
    if call.is_action:
        return agent_pb2.ActionEnd(action_id=call.tool_id)
    end = agent_pb2.ToolEnd(tool_id=call.tool_id)
    if call.is_whole and not call.problem:
        end.tool_params = call.effective
    return end


def result_event(call: Call, text: str, ok: bool) -> agent_pb2.ToolResult | agent_pb2.ActionResult:
    if call.is_action:
        return agent_pb2.ActionResult(action_id=call.tool_id, result=text)
    return agent_pb2.ToolResult(tool_id=call.tool_id, result=text, ok=ok)
