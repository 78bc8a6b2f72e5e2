"""Facts copied from the log after every summary, independent of the model's text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from headrace.v1 import memory_pb2
from services.memory.context.fitting import shorten_text
from services.memory.context.source import get_position, is_compact_command
from services.memory.log.lines import Event, Intent, Query, Step
from services.memory.log.raw_json import QUERY_FIELDS, load_delta, load_proto

if TYPE_CHECKING:
    from services.memory.compaction.transcript import CountText
    from services.memory.context.pairing import MessageGroup
    from services.memory.context.source import ContextSource
    from services.memory.log.lines import Line
    from services.memory.log.views import SessionState

KEPT_CHARS_MAX = 200

ITEM_CHARS_MAX = 1_000
"""Maximum characters of an item in a receipt; after the summary it may be longer."""

OPEN_TASKS = frozenset({"", "init", "in_progress"})


class Todo(msgspec.Struct):
    content: str = ""
    status: str = ""


_APPROVAL = b'"approval.'
"""Part of every approval event, which avoids parsing most others."""

_TODOS = msgspec.json.Decoder(list[Todo])


class Request(NamedTuple):
    """A request of a user or a caller."""

    text: str
    n: int
    """Line of the log."""
    is_kept: bool = False
    """Whether its message is kept verbatim, so that after the summary its beginning is enough."""

    def shorten(self, chars_max: int) -> str:
        return shorten_text(self.text, chars_max, f"read_history {self.n}")

    def fit(self, room: int, count: CountText) -> str:
        """Return the text, shortened if it exceeds `room` tokens or is shown elsewhere."""
        if self.is_kept:
            return self.shorten(KEPT_CHARS_MAX)
        cost = count(self.text)
        return self.text if cost <= room else self.shorten(len(self.text) * room // cost)


NOTHING = Request("", 0)


@dataclass(frozen=True, slots=True)
class PinnedFacts:
    requests: Mapping[str, Request]
    """Requests by section name; none is empty."""

    sections: Mapping[str, Sequence[str]]
    """Items by section name, each possibly of several lines; none is empty."""

    def format(self, room: int, count: CountText) -> str:
        """Format the text that follows the summary, each request within `room` tokens; empty if there are no facts."""
        requests = {name: [request.fit(room, count)] for name, request in self.requests.items()}
        sections: dict[str, Sequence[str]] = {**requests, **self.sections}
        return "\n\n".join(f"{name}:\n" + "\n".join(f"- {item}" for item in items) for name, items in sections.items())

    def list_items(self) -> list[str]:
        """List all items, each with its section name, with long requests shortened."""
        requests = [f"{name}: {request.shorten(ITEM_CHARS_MAX)}" for name, request in self.requests.items()]
        return [*requests, *(f"{name}: {item}" for name, items in self.sections.items() for item in items)]


def collect_facts(source: ContextSource, first_request: Request, intent: Request, todos: Iterable[Todo]) -> PinnedFacts:
    """Collect goal, todos, the plan's open tasks, and unanswered calls."""
    requests = {"Intent": intent}
    if first_request.text != intent.text:
        requests["First request"] = first_request
    sections = {
        "Todos": [f"[{todo.status}] {todo.content}" for todo in todos if todo.content],
        "Open tasks of the plan": list_open_tasks(source.lines, source.context_id),
        "Tool calls without a result": list_open_calls(source.read_own_run()),
        "Approvals that are waited for": list_open_approvals(source.lines, source.context_id),
    }
    return PinnedFacts(
        {name: request for name, request in requests.items() if request.text},
        {name: items for name, items in sections.items() if items},
    )


def read_todos(state: SessionState) -> list[Todo]:
    """Read a session state's todos; none if their format is unknown."""
    try:
        return _TODOS.decode(state.values.get("todos", b"[]"))
    except msgspec.DecodeError:
        return []


def find_intent(source: ContextSource) -> Request:
    """Return the goal of a whole context: its last intent line, else the user's last message."""
    lines = [line for run in (*source.before, source.lines) for line in run]
    intents = [line for line in lines if isinstance(line, Intent) and line.context_id == source.context_id]
    if intents:
        return Request(intents[-1].text, intents[-1].n)
    runs = (source.read_own_run(), *source.read_earlier_runs())
    # The message that is being answered is never replaced.
    return next(_list_requests((group for groups in runs for group in reversed(groups)), is_kept=True), NOTHING)


def find_first_request(source: ContextSource) -> Request:
    """Return the first request of a whole context, which later goals may have superseded."""
    if source.scope.is_main:
        lines = (line for run in (*source.before, source.lines) for line in run)
        asked = (Request(QUERY_FIELDS.decode(line.query).message, line.n) for line in lines if isinstance(line, Query))
        requests = (request for request in asked if request.text and not is_compact_command(request.text))
    else:
        requests = _list_requests(source.read_own_run())
    return next(requests, NOTHING)


def _list_requests(groups: Iterable[MessageGroup], *, is_kept: bool = False) -> Iterator[Request]:
    return (Request(text, get_position(group).n, is_kept) for group in groups if (text := read_question(group)))


def read_question(group: MessageGroup) -> str:
    return "".join(part.text for part in group.head.message.content) if group.is_question else ""


def list_open_tasks(lines: Sequence[Line], context_id: str | None) -> list[str]:
    last = next(
        (line for line in reversed(lines) if isinstance(line, Step) and line.context_id == context_id and line.plan),
        None,
    )
    if last is None:
        return []
    plan = load_proto(last.plan, memory_pb2.Plan())
    return [
        f"{task.task_id}: {task.description} ({task.status or 'init'})"
        for task in plan.tasks
        if task.status in OPEN_TASKS
    ]


def list_open_calls(groups: Sequence[MessageGroup]) -> list[str]:
    """List the last answer's calls without result; earlier ones will no longer get one."""
    last = next((group for group in reversed(groups) if group.role == "assistant"), None)
    if last is None:
        return []
    calls = enumerate(last.head.message.tool_calls)
    return [f"{call.name} {call.arguments} ({call.id})" for index, call in calls if index not in last.results]


def list_open_approvals(lines: Iterable[Line], context_id: str | None) -> list[str]:
    waiting: dict[str, str] = {}
    for line in lines:
        if not isinstance(line, Event) or line.context_id != context_id or _APPROVAL not in bytes(line.event):
            continue
        delta = load_delta(line.event)
        if delta is not None and delta.HasField("approval_ask"):
            ask = delta.approval_ask
            waiting[ask.approval_id] = f"{ask.tool_id}: {ask.reason} ({ask.approval_id})"
        elif delta is not None and delta.HasField("approval_answer"):
            waiting.pop(delta.approval_answer.approval_id, None)
    return list(waiting.values())
