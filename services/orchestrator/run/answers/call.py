"""Validates arguments of calls that the orchestrator executes itself; large integers keep all digits."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jsonschema_rs import ValidationError

from headrace.v1 import agent_pb2, llm_pb2, memory_pb2, tools_pb2
from services.orchestrator import ids
from services.runtime.clock import now_ms
from services.runtime.formats.json_form import is_object
from services.runtime.formats.json_schema import NotChecked, compile_schema, describe_violations, format_path, load_json


def violation(call: Call) -> str:
    """Return a description of invalid arguments for the model; empty if they are valid."""
    try:
        value = load_json(call.effective)
    except (ValueError, RecursionError):
        return "invalid arguments: $: not valid JSON"
    if not isinstance(value, dict):
        return "invalid arguments: $: must be a JSON object"
    assert call.tool is not None, "a call without a tool is refused before"
    problem = describe_violations(value, compile_schema(call.tool.parameters or "{}"))
    return f"invalid arguments: {problem}" if problem else ""


def find_violation(call: Call) -> tuple[str, str] | None:
    """Return the path at which the arguments first violate the tool's schema, and the expectation; None if valid.

    Neither contains the value, because errors must not.
    """
    assert call.tool is not None, "a call without a tool is refused before"
    try:
        value = load_json(call.effective)
    except RecursionError:
        return "", "it is nested too deeply"
    try:
        errors = compile_schema(call.tool.parameters or "{}", mask="the value").find_errors(value)
    except NotChecked as problem:
        return "", f"it is {problem}"
    return (format_path(errors[0])[1:], errors[0].message) if errors else None


FIT_ROUNDS_MAX = 8
"""Maximum checks of arguments that are read as meant; reading one value may show mistakes within it."""


def fit_arguments(call: Call) -> str:
    """Return the arguments as the model meant them: JSON that it wrote as a text is parsed, a whole number becomes the
    text that is expected, null is left out, and so is what our own tools do not know.

    They are unchanged unless only the result matches the tool's schema.
    """
    assert call.tool is not None, "a call without a tool is refused before"
    try:
        value, schema = load_json(call.effective), compile_schema(call.tool.parameters or "{}")
        for number in range(FIT_ROUNDS_MAX):
            errors = schema.find_errors(value)
            if not errors:
                return json.dumps(value, ensure_ascii=False, allow_nan=False) if number else call.effective
            # A list: every error must be repaired.
            if not any([_read_as_meant(value, error, is_own=call.kind == "own") for error in errors]):  # noqa: C419
                break
    except (ValueError, LookupError, RecursionError, NotChecked):
        pass
    return call.effective


def _read_as_meant(value: Any, error: ValidationError, *, is_own: bool) -> bool:
    """Change the part of the arguments with the error to what was probably meant; return whether it was changed."""
    holder, key = value, ""
    for step in error.instance_path:
        holder, key = value, str(step) if isinstance(value, dict) else step
        value = value[key]
    rule = error.kind.name
    if is_own and rule == "additionalProperties":
        for name in error.kind.as_dict()["unexpected"]:
            del value[name]
    elif holder is value:  # the arguments as a whole
        return False
    elif value is None and isinstance(holder, dict):
        del holder[key]
    elif isinstance(value, str):
        holder[key] = load_json(value)
    elif rule == "type" and type(value) is int:
        holder[key] = str(value)
    else:
        return False
    return True


_DECODER = json.JSONDecoder()

OBJECTS_MAX = 8
"""Maximum objects that are read as one call's arguments."""

_NOT_SPACE = re.compile(r"\S|$")

CLIENT = "client"
"""Tier and tool_api of functions that the query's caller performs."""

FRONTEND_WAIT_MS = 300_000
"""Default timeout of tools that set none."""


@dataclass(slots=True)
class Call:
    call_id: str

    tool_id: str
    """Id in events: call_id for a backend tool, an own id for frontend tools and actions."""

    name: str
    tool: tools_pb2.Tool | None
    """None if the model may not call a tool of this name."""

    first_seq: int = 0
    param_seq: int = 0
    """For an action, seq of the event that makes the front end perform it; 0 before."""
    started_at: int = 0
    pieces: list[str] = field(default_factory=list[str])
    ended: bool = False
    params: str = ""
    """Arguments that replace the model's own; empty for none."""

    siblings: int = 1
    """Number of calls in the answer, which share the remaining budget."""

    is_resumed: bool = False
    """Whether an earlier owner may have started the call."""

    waits_since: int = 0
    """Unix milliseconds; 0 if no earlier owner waited."""

    result: str = ""
    ok: bool = True

    asked: int = 0
    """Times that a person was asked whether to run the call again."""

    problem: str = ""

    note: str = ""
    """Note for the model, appended to the result."""

    media: Sequence[llm_pb2.ContentPart] = ()
    """Images, sounds and files of the chat that the result shows again."""

    @property
    def kind(self) -> str:
        return self.tool.kind if self.tool is not None else "backend"

    @property
    def is_action(self) -> bool:
        return self.kind == "action"

    @property
    def is_programs(self) -> bool:
        """Whether the query's caller performs the call itself, so that no person is asked."""
        return self.tool is not None and self.tool.tier == CLIENT

    @property
    def arguments(self) -> str:
        """JSON text; an empty object if the model sent none."""
        text = "".join(self.pieces) or "{}"
        return _pick_object(text) if "}" in text[:-1] and not is_object(text) else text

    @property
    def effective(self) -> str:
        return self.params or self.arguments

    @property
    def is_whole(self) -> bool:
        """Whether the arguments form a complete JSON object."""
        return is_object(self.arguments)

    @property
    def viewport_key(self) -> str:
        """The view that shows a frontend tool."""
        return (self.tool.viewport_key or self.tool.name) if self.tool is not None else ""

    @property
    def wait_left_ms(self) -> int:
        waited_ms = now_ms() - self.waits_since if self.waits_since else 0
        return max(0, self.timeout_ms - waited_ms)

    @property
    def timeout_ms(self) -> int:
        return self.tool.timeout_ms if self.tool is not None and self.tool.timeout_ms > 0 else FRONTEND_WAIT_MS

    def keep_in(self, piece: memory_pb2.LogMessage) -> None:
        if self.is_action:
            piece.action_id = self.tool_id
        else:
            piece.tool_id = self.tool_id


def _pick_object(text: str) -> str:
    """Return the object that a server sent after empty ones, repeatedly, or as a text; otherwise the text."""
    found = dict[str, str]()
    at = 0
    try:
        for _ in range(OBJECTS_MAX):
            if at == len(text) or len(found) > 1:
                break
            value, end = _DECODER.raw_decode(text, at)
            piece = value if isinstance(value, str) else text[at:end]
            value = json.loads(piece)
            found |= {json.dumps(value): piece} if value else {}
            following = _NOT_SPACE.search(text, end)
            at = len(text) if following is None else following.start()
    except (ValueError, RecursionError):
        return text
    return next(iter(found.values())) if len(found) == 1 and at == len(text) else text


def begin(run_id: str, call_id: str, name: str, tool: tools_pb2.Tool | None) -> Call:
    if tool is not None and tool.kind == "frontend":
        return Call(call_id, ids.frontend_id(run_id, call_id), name, tool)
    if tool is not None and tool.kind == "action":
        return Call(call_id, ids.action_id(run_id, call_id), name, tool)
    return Call(call_id, call_id, name, tool)


def restore_call(asked: llm_pb2.ToolCall, piece: memory_pb2.LogMessage, tool: tools_pb2.Tool | None) -> Call:
    call = Call(asked.id, piece.action_id or piece.tool_id or asked.id, asked.name, tool)
    call.pieces = [] if asked.arguments == "{}" else [asked.arguments]
    call.params, call.started_at = piece.tool_params, piece.timing.started_at
    call.ended = call.is_resumed = True
    call.waits_since = piece.timing.ended_at
    return call


def describe_tool(call: Call) -> memory_pb2.ToolDetails:
    tool, details = call.tool, memory_pb2.ToolDetails()
    if not call.is_action:
        details.tool_type = "orchestrator" if call.kind == "own" else call.kind
    if tool is None or tool.kind not in ("frontend", "action"):
        return details
    if tool.description:
        details.description = tool.description
    if tool.kind == "frontend":
        if tool.tier == CLIENT:
            details.tool_api = CLIENT
        else:
            details.viewport_key = call.viewport_key
        details.tool_timeout = call.timeout_ms
    return details


def start_event(call: Call, run_id: str) -> agent_pb2.ToolStart | agent_pb2.ActionStart:
    details: dict[str, Any] = {field.name: value for field, value in describe_tool(call).ListFields()}
    if call.is_action:
        return agent_pb2.ActionStart(action_id=call.tool_id, run_id=run_id, action_name=call.name, **details)
    return agent_pb2.ToolStart(tool_id=call.tool_id, run_id=run_id, tool_name=call.name, **details)


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
