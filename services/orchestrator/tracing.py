"""Spans of a run, its tool calls, sub-agents and compactions.

A run's span is the child of its query's; after a takeover it has a separate trace, linked to the query's.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import orjson
from opentelemetry import trace
from opentelemetry.trace import Span

from headrace.run_states import State
from services.orchestrator.run.control.state import Stopped
from services.runtime.telemetry import names, spans

if TYPE_CHECKING:
    from headrace.v1 import memory_pb2
    from headrace.v1.tools_pb2 import ToolOutcome
    from services.orchestrator.agents.definition import Definition
    from services.orchestrator.run.answers.call import Call
    from services.orchestrator.run.run import Run
    from services.orchestrator.run.scope import Scope

TOOL_FAILED = "tool_failed"
"""Error type of a failed call; the actual reason is content and stays out of the span."""


def start_run_span(run: Run) -> AbstractContextManager[Span]:
    if not spans.is_recording():
        return spans.NO_SPAN
    return spans.start_span(_make_span_name(run.agent.key), _run_attributes(run))


def start_resumed_span(run: Run) -> AbstractContextManager[Span]:
    return spans.start_linked_span(_make_span_name(run.agent.key), run.past.traceparent, _run_attributes(run))


def mark_run_end(run: Run, line: memory_pb2.RunLine) -> None:
    if not spans.is_recording() or not (span := trace.get_current_span()).is_recording():
        return
    usage = line.usage
    if spans.captures_content():
        answer = _make_messages("assistant", run.main.notes.last_text, finish_reason=line.finish_reason or line.state)
        span.set_attribute(names.OUTPUT_MESSAGES, answer)
    span.set_attributes(
        {
            names.RUN_STATE: line.state,
            names.INPUT_TOKENS: usage.input_tokens,
            names.OUTPUT_TOKENS: usage.output_tokens,
            names.COST_USD: usage.cost_usd,
        }
    )
    if line.state == State.FAILED:
        spans.mark_failed(span, line.error.code)


def start_tool_span(call: Call) -> AbstractContextManager[Span]:
    """Open the span of a tool call, from the gate to its result, including waits for people."""
    attributes = {
        names.OPERATION: names.EXECUTE_TOOL,
        names.TOOL_NAME: call.name,
        names.TOOL_CALL_ID: call.call_id,
        names.TOOL_TYPE: "function",
        names.TOOL_KIND: call.kind,
    }
    if spans.captures_content():
        attributes[names.TOOL_ARGUMENTS] = spans.limit_content(call.arguments)
    return spans.start_span(f"{names.EXECUTE_TOOL} {call.name}", attributes)


def mark_tool_end(span: Span, outcome: ToolOutcome) -> None:
    if not outcome.ok:
        spans.mark_failed(span, TOOL_FAILED)
    if spans.captures_content():
        span.set_attribute(names.TOOL_RESULT, spans.limit_content(outcome.result))


@contextmanager
def start_subagent_span(scope: Scope) -> Generator[None]:
    """Open the span of a sub-agent's work; a cancel after the current step does not count as a failure."""
    attributes = {**_describe_agent(scope.run, scope.agent), names.SUBAGENT_ID: scope.subagent_id or ""}
    stopped: Stopped | None = None
    with spans.start_span(_make_span_name(scope.agent.key), attributes):
        try:
            yield
        except Stopped as error:
            stopped = error
    if stopped is not None:
        raise stopped


def start_compaction_span(trigger: str) -> AbstractContextManager[Span]:
    return spans.start_span("compact_context", {names.COMPACTION_TRIGGER: trigger})


def mark_compaction_end(span: Span, kind: str) -> None:
    span.set_attribute(names.COMPACTION_OUTCOME, kind)
    if kind == "fail":
        spans.mark_failed(span, "compaction_failed")


def _make_span_name(agent_key: str) -> str:
    return f"{names.INVOKE_AGENT} {agent_key}"


def _make_messages(role: str, text: str, **fields: str) -> str:
    """Return one message in the conventions' JSON."""
    parts = [{"type": "text", "content": spans.limit_content(text)}]
    return orjson.dumps([{"role": role, "parts": parts, **fields}]).decode()


def _run_attributes(run: Run) -> spans.Attributes:
    asked = {names.INPUT_MESSAGES: _make_messages("user", run.query.message)} if spans.captures_content() else {}
    return {**asked, **_describe_agent(run, run.agent)}


def _describe_agent(run: Run, agent: Definition) -> spans.Attributes:
    return {
        names.OPERATION: names.INVOKE_AGENT,
        names.AGENT_ID: agent.key,
        names.AGENT_NAME: agent.name or agent.key,
        names.CONVERSATION_ID: run.chat_id,
        names.RUN_ID: run.id,
    }
