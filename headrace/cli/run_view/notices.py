"""Renders events as sentences: notices, plans, sub-agents, approvals, compactions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from headrace.cli.run_view.printing import describe_usage, show_text
from headrace.shown_text import shorten_line
from headrace.v1 import agent_pb2

ARGUMENTS_CHARS_MAX = 500
"""How much of a waiting call's arguments is shown; `headrace gates show` prints all."""

SUMMARY_CHARS_MAX = 200


class Notices:
    """Renders the events of one run; for a plan, only new and changed tasks."""

    def __init__(self) -> None:
        self._tasks: dict[str, str] = {}

    def describe_event(self, delta: agent_pb2.AgentDelta, run_id: str) -> Iterator[str]:
        match delta.WhichOneof("payload"):
            case "plan_create":
                yield from self._describe_changes(delta.plan_create.plan)
            case "plan_update":
                yield from self._describe_changes(delta.plan_update.plan)
            case _:
                if text := _describe(delta, run_id):
                    yield text

    def _describe_changes(self, plan: Iterable[agent_pb2.Task]) -> Iterator[str]:
        for task in plan:
            text = f"plan: [{task.status}] {task.description}"
            if self._tasks.get(task.task_id) != text:
                self._tasks[task.task_id] = text
                yield text


def _describe(delta: agent_pb2.AgentDelta, run_id: str) -> str:
    match delta.WhichOneof("payload"):
        case "run_notice":
            return delta.run_notice.message
        case "attempt_reset":
            return "the last part was lost and is being repeated"
        case "subagent_start":
            return f"sub-agent, asked: {delta.subagent_start.goal}"
        case "subagent_end":
            end = delta.subagent_end
            summary = end.summary
            if len(summary) > SUMMARY_CHARS_MAX:
                summary = f"{summary[:SUMMARY_CHARS_MAX]}…"
            return f"sub-agent {'done' if end.ok else 'failed'}: {summary}"
        case "task_fail":
            return f"failed: {delta.task_fail.error.code}: {delta.task_fail.error.message}"
        case "artifact_publish":
            return f"file: {delta.artifact_publish.name} {delta.artifact_publish.url}"
        case "request_upload":
            return f"uploaded: {delta.request_upload.upload.name}"
        case "request_steer":
            return f"message: {delta.request_steer.message}"
        case "gate_open" if delta.gate_open.HasField("need"):
            gate = delta.gate_open
            get = f" (available at {gate.need.obtain})" if gate.need.obtain else ""
            return f"{gate.reason}{get}; supply it in the console, or with {describe_command(run_id, gate)}"
        case "gate_open" if delta.gate_open.HasField("ask"):
            gate = delta.gate_open
            how = describe_command(run_id, gate)
            return f'{gate.reason}; answer it in the console, or with {how}; JSON may be {{"cancelled": true}}'
        case "gate_open":
            rule = delta.gate_open.answerers
            who = describe_answerers(rule.any_of, not_requester=rule.not_requester, count=rule.count)
            return f"waits for {who}" if who else ""
        case "gate_step" if delta.gate_step.step not in ("claimed", "released"):  # claims are renewed twice a minute
            return describe_step(delta.gate_step)
        case "grant_make":
            grant = delta.grant_make
            return f"approved ahead by {', '.join(grant.made_by)}: {grant.tool_name}, for this {grant.scope}"
        case "grant_use":
            return f"{delta.grant_use.tool_name} runs without a question, as it was approved ahead"
        case "approval_ask":
            return f"approval is asked for: {delta.approval_ask.reason}"
        case "approval_answer":
            answer = delta.approval_answer
            by = f" by {answer.by}{'' if answer.credential else ' (identity unproven)'}" if answer.by else ""
            return f"approval: {answer.decision}{by}{f': {answer.note}' if answer.note else ''}"
        case "compaction_start":
            return f"waiting for a summary of the older messages: {delta.compaction_start.pre_tokens} tokens"
        case "compaction_complete":
            return _describe_compaction(delta.compaction_complete)
        case "compaction_fallback":
            return _describe_compaction(delta.compaction_fallback)
        case "compaction_fail":
            return f"not compacted: {delta.compaction_fail.reason}"
        case _:
            return ""


def describe_waits(run_id: str, chat_id: str | None, gates: Iterable[tuple[agent_pb2.GateOpen, str]]) -> Iterator[str]:
    """Yield lines that say what the run waits for, and how to answer; each gate comes with its call's arguments."""
    for gate, arguments in gates:
        called = f"({shorten_line(arguments, ARGUMENTS_CHARS_MAX)})" if gate.kind == "approval" else ""
        about = f": {gate.reason}" if gate.reason else ""
        yield show_text(f"{gate.kind} of {gate.tool_name}{called}{about}")
        yield f"  answer it with: {describe_command(run_id, gate)}"
    yield f"see the rest of the run with: headrace follow {chat_id}"


def describe_command(run_id: str, gate: agent_pb2.GateOpen) -> str:
    """Return the command that answers a gate."""
    command = f"headrace gates answer {run_id} {gate.gate_id}"
    match gate.kind:
        case "approval":
            return f"{command} approve (or reject)"
        case "credential":
            return f"{command} --credential -"
        case _ if gate.ask.HasField("url"):
            return f"""{command} '{{"done": true}}'"""
        case _:
            return f"{command} JSON" + (f" (of the JSON Schema {gate.result_schema})" if gate.result_schema else "")


def _describe_compaction(done: agent_pb2.CompactionComplete | agent_pb2.CompactionFallback) -> str:
    reason = f" without a summary ({done.reason})" if isinstance(done, agent_pb2.CompactionFallback) else ""
    parts = [f"compacted{reason}: {describe_result(done)}"]
    if (receipt := done.receipt).replaced_messages:
        parts.append(f"lines {receipt.first_line}-{receipt.last_line}, {receipt.replaced_messages} messages")
    if receipt.HasField("usage"):
        parts.append(describe_usage(receipt.usage))
    return "; ".join(parts)


def describe_result(
    done: agent_pb2.CompactionComplete | agent_pb2.CompactionFallback | agent_pb2.ContextCompaction,
) -> str:
    """Return text such as `9,000 tokens are 900 (10%); files kept: a.py`."""
    text = f"{done.pre_tokens:,} tokens are {done.post_tokens:,} ({done.post_tokens / max(1, done.pre_tokens):.0%})"
    return f"{text}; files kept: {', '.join(done.files_included)}" if done.files_included else text


def describe_answerers(any_of: Sequence[str], *, not_requester: bool, count: int = 1) -> str:
    """Return text such as `2 of role:finance or user:ada, not the requester`; empty if only the requester may
    answer.
    """
    if list(any_of) in ([], ["requester"]):
        return ""
    several = f"{count} of " if count > 1 else ""
    return several + " or ".join(any_of) + (", not the requester" if not_requester else "")


def describe_step(step: agent_pb2.GateStep) -> str:
    """Return text such as `delegated by ada to role:finance: please look`."""
    by = f" by {step.by}{'' if step.credential else ' (identity unproven)'}" if step.by else ""
    decision = f" to {step.decision}" if step.decision else ""
    to = f" to {', '.join(step.to)}" if step.to else ""
    return f"{step.step.replace('_', ' ')}{decision}{by}{to}{f': {step.note}' if step.note else ''}"
