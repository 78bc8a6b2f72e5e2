"""A step's messages as snapshot events: whole blocks, each with the seq of its last delta."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.v1 import agent_pb2
from services.memory.context.scopes import get_agent_id
from services.memory.log.lines import STAGES_BEFORE_ANSWER, Call, Step, StoredMessage
from services.memory.log.messages import join_text

SUBAGENT = "subagent-"
"""Prefix of a sub-agent's id, and of every context id within it."""


def make_snapshots(line: Step) -> Iterator[agent_pb2.AgentDelta]:
    """Yield a step's events, leaving out unsent messages (drafts), which have no event range."""
    for message in line.messages:
        if message.events is None:
            continue
        delta = _make_snapshot(line, message)
        if delta is None:
            continue
        delta.seq = message.events.last
        delta.timestamp = message.ts or line.updated_at
        if line.task_id is not None:
            delta.task_id = line.task_id
        if line.context_id is not None and line.context_id.startswith(SUBAGENT):
            delta.subagent_id = get_agent_id(line.context_id)
        yield delta


def _make_snapshot(line: Step, message: StoredMessage) -> agent_pb2.AgentDelta | None:
    if message.role == "tool":
        return _make_result_event(message)
    if message.role != "assistant":
        return None
    if message.tool_calls:
        return _make_call_snapshot(message, message.tool_calls[0])
    if message.reasoning_content is not None:
        reasoning = agent_pb2.ReasoningSnapshot(
            reasoning_id=message.reasoning_id or "", run_id=line.run_id, text=join_text(message.reasoning_content)
        )
        return agent_pb2.AgentDelta(reasoning_snapshot=reasoning)
    content = agent_pb2.ContentSnapshot(
        content_id=message.content_id or "",
        run_id=line.run_id,
        text=join_text(message.content),
        stage=line.stage,
        is_answer=line.context_id is None and line.stage not in STAGES_BEFORE_ANSWER,
    )
    return agent_pb2.AgentDelta(content_snapshot=content)


def _make_call_snapshot(message: StoredMessage, call: Call) -> agent_pb2.AgentDelta:
    arguments = call.function.arguments if message.raw_arguments is None else None
    # Arguments with braces that nobody resolved were refused (argument templates): they are none to run with.
    params = None if arguments and "{{" in arguments else arguments
    if message.action_id is not None:
        action = agent_pb2.ActionSnapshot(
            action_id=message.action_id, action_name=call.function.name, arguments=arguments
        )
        return agent_pb2.AgentDelta(action_snapshot=action)
    tool = agent_pb2.ToolSnapshot(
        tool_id=message.tool_id or call.id,
        tool_name=call.function.name,
        tool_params=bytes(message.tool_params).decode() if message.tool_params else params,
        arguments=arguments,
    )
    return agent_pb2.AgentDelta(tool_snapshot=tool)


def _make_result_event(message: StoredMessage) -> agent_pb2.AgentDelta:
    text = join_text(message.content)
    if message.action_id is not None:
        return agent_pb2.AgentDelta(action_result=agent_pb2.ActionResult(action_id=message.action_id, result=text))
    tool_id = message.tool_id or message.tool_call_id or ""
    result = agent_pb2.ToolResult(tool_id=tool_id, result=text, ok=message.ok is not False)
    return agent_pb2.AgentDelta(tool_result=result)
