"""What events say in a sentence: notices, plans, sub-agents, approvals, compactions. Only what is new is told."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.cli.events import Event, Task

SUMMARY_CHARS_MAX = 200


class Sentences:
    """The sentences of one run."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}

    def told(self, event: Event) -> Iterator[str]:
        """What to say of `event`; of most there is nothing."""
        if event.type in ("plan.create", "plan.update"):
            yield from self._plan(event)
        elif text := _sentence(event):
            yield text

    def _plan(self, event: Event) -> Iterator[str]:
        """The tasks that are new, or have changed."""
        for task in event.plan:
            if self._tasks.get(task.task_id) != task:
                self._tasks[task.task_id] = task
                yield f"plan: {task.words}"


def _sentence(event: Event) -> str:
    match event.type:
        case "run.notice":
            return event.message
        case "attempt.reset":
            return "the last part was lost and is made again"
        case "subagent.start":
            return f"sub-agent, asked: {event.goal}"
        case "subagent.end":
            return f"sub-agent {'done' if event.ok else 'failed'}: {_short(event.summary)}"
        case "task.fail":
            return f"failed: {event.error.code}: {event.error.message}"
        case "artifact.publish":
            return f"file: {event.name} {event.url}"
        case "request.steer":
            return f"told: {event.message}"
        case "approval.ask":
            return f"approval is asked for: {event.reason}"
        case "approval.answer":
            by = f" by {event.by}" if event.by else ""
            return f"approval: {event.decision}{by}{f': {event.note}' if event.note else ''}"
        case "compaction.start":
            return f"compacting {event.pre_tokens} tokens"
        case "compaction.complete" | "compaction.fallback":
            return f"compacted: {event.pre_tokens} tokens are {event.post_tokens}"
        case "compaction.fail":
            return f"not compacted: {event.reason}"
        case _:
            return ""


def _short(text: str) -> str:
    return text if len(text) <= SUMMARY_CHARS_MAX else f"{text[:SUMMARY_CHARS_MAX]}…"
