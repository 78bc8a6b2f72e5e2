"""The parts of a request by kind, messages left out of it, and the last compaction: for people who inspect a window.

It only reads the view. However long the chat is, there is one part for each kind, state and reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.v1 import agent_pb2, common_pb2, llm_pb2, memory_pb2
from services.memory.compaction.plan import FALLBACK
from services.memory.compaction.prompt import split_content, split_sections
from services.memory.compaction.receipt import read_usage, to_event
from services.memory.context.fitting import get_last_n
from services.memory.context.pairing import LEFT_OUT as NOTICE
from services.memory.context.pairing import WHOLE
from services.memory.context.source import select_whole
from services.memory.log.lines import CompactBoundary, Run, Step
from services.memory.log.media import get_media
from services.memory.log.raw_json import load_proto
from services.runtime.usage import sum_usages

if TYPE_CHECKING:
    from services.memory.context.pairing import MessageGroup, PairedMessage
    from services.memory.context.scopes import AppliedCompaction
    from services.memory.context.source import ContextSource
    from services.memory.context.token_counter import TokenCounter
    from services.memory.context.view import ContextView
    from services.memory.log.lines import Line

SHOWN, SHORTENED, SUMMARISED, LEFT_OUT = "shown", "shortened", "summarised", "left_out"

REASONS = {
    "shortened": "too long for its place: an earlier run's, or larger than the window leaves",
    "insight": "an older result, which recap shows as one line",
}
"""Reasons by form of a message."""

PAST_CAP = "past the caps of runs or messages"
TOO_LARGE = "does not fit the model's window"
BEFORE_ANSWER = "what an earlier run with a plan did before its answer"
COMPACTED = "a summary replaces it"
WITHOUT_SUMMARY = "dropped by a compaction that got no summary"


@dataclass(frozen=True, slots=True)
class FittedRequest:
    """A request fitted to its model's window."""

    view: ContextView
    shown: Sequence[MessageGroup]
    """The groups of the view that remain in it."""
    system: str
    tools: Sequence[llm_pb2.ToolSchema]


class _Parts:
    """Parts in the order of their first message."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._found: dict[tuple[str, str, str], agent_pb2.ContextPart] = {}

    def add(self, kind: str, tokens: int, *, state: str = SHOWN, why: str = "", n: int = 0, count: int = 1) -> None:
        """Add `tokens`, which are not scaled to the model's."""
        part = self._found.setdefault(
            (kind, state, why), agent_pb2.ContextPart(kind=kind, state=state, why=why, first_n=n, last_n=n)
        )
        part.count += count
        part.tokens += tokens
        if n:
            part.first_n, part.last_n = min(part.first_n or n, n), max(part.last_n, n)

    def add_group(self, group: MessageGroup, state: str = SHOWN, why: str = "") -> None:
        if group.reminders:
            tokens = self._counter.count_reminders(group)
            self.add("reminder", tokens, state=state, why=why, n=get_last_n(group), count=len(group.reminders))
        for paired in group.list_messages():
            is_whole = state != SHOWN or paired.form in WHOLE or paired.form.startswith(NOTICE)
            self.add(
                _get_kind(paired),
                self._counter.count_paired(paired),
                state=state if is_whole else SHORTENED,
                why=why if is_whole else REASONS.get(paired.form.split()[0], paired.form),
                n=paired.at.n if paired.at else 0,
            )

    def list_all(self) -> list[agent_pb2.ContextPart]:
        for part in self._found.values():
            part.tokens = self._counter.to_model_tokens(part.tokens)
        return sorted(self._found.values(), key=lambda part: part.state in (SUMMARISED, LEFT_OUT))


def list_parts(
    runs: Mapping[str, Sequence[Line]], source: ContextSource, fitted: FittedRequest, counter: TokenCounter
) -> list[agent_pb2.ContextPart]:
    """List the parts of a request, those left out last; `runs` are the chat's lines."""
    parts = _Parts(counter)
    frame = counter.count_frame(fitted.system, ())
    parts.add("system", frame, count=bool(fitted.system))
    if fitted.tools:
        tools = counter.count_frame(fitted.system, fitted.tools) - frame
        parts.add("tools", tools, count=len(fitted.tools))
    summary = fitted.view.summary
    for group in fitted.shown:
        if summary is not None and group.head.at == summary.head.at:
            parts.add("summary", counter.count_group(group), n=group.head.at.n if group.head.at else 0)
        else:
            parts.add_group(group)
    for group, why in _find_left(runs, source, fitted):
        parts.add_group(group, SUMMARISED if why == COMPACTED else LEFT_OUT, why)
    return parts.list_all()


def find_last_call(source: ContextSource) -> common_pb2.Usage | None:
    """Return the usage of a context's last model call; None before the first."""
    lines = [line for run in (*source.before, source.lines) for line in run]
    for line in reversed(lines):
        if isinstance(line, Step) and line.context_id == source.context_id:
            for message in reversed(line.messages):
                if message.usage:
                    return load_proto(message.usage, common_pb2.Usage())
    return None


def add_parts(
    response: memory_pb2.LoadContextResponse,
    runs: Mapping[str, Sequence[Line]],
    source: ContextSource,
    fitted: FittedRequest,
    counter: TokenCounter,
) -> None:
    response.parts.extend(list_parts(runs, source, fitted, counter))
    if (usage := find_last_call(source)) is not None:
        response.last_call.CopyFrom(usage)


def _get_kind(paired: PairedMessage) -> str:
    if any(get_media(part) is not None for part in paired.message.content):
        return "files"
    return "results" if paired.message.role == "tool" else "messages"


def _find_left(
    runs: Mapping[str, Sequence[Line]], source: ContextSource, fitted: FittedRequest
) -> Iterator[tuple[MessageGroup, str]]:
    """Yield the logged groups that are not in the request, in order, each with the reason."""
    shown = {group.head.at for group in fitted.shown}
    offered = {group.head.at for group in fitted.view.groups}
    whole = select_whole(runs, source.run_id, source.context_id)
    places = {group.head.at for group in whole.read_all()}
    for group in whole.read_log():
        at = group.head.at
        if at is None or at in shown:
            continue
        compaction = next((compaction for compaction in source.compactions if at < compaction.start), None)
        if at not in places:
            yield group, BEFORE_ANSWER
        elif compaction is None:
            yield group, TOO_LARGE if at in offered else PAST_CAP
        else:
            yield group, WITHOUT_SUMMARY if compaction.boundary.compact_metadata.strategy == FALLBACK else COMPACTED


BEHIND = "Behind the summary"
"""Title of the text that compaction appends: goal, todos, files and pinned messages."""


def add_compaction(
    response: memory_pb2.LoadContextResponse,
    lines: Iterable[Line],
    compaction: AppliedCompaction | None,
    counter: TokenCounter,
) -> None:
    """Add the last compaction of a context, and its chat's usage; `lines` are all lines of the chat."""
    if compaction is not None:
        response.compaction.CopyFrom(describe_compaction(compaction, counter))
    ended: list[common_pb2.Usage] = []
    between: list[common_pb2.Usage] = []
    for line in lines:
        if isinstance(line, Run) and line.usage:
            usage = load_proto(line.usage, common_pb2.Usage())
            ended.append(usage)
        elif isinstance(line, CompactBoundary) and not line.run_id and (receipt := line.compact_metadata.receipt):
            between += [usage] if (usage := read_usage(receipt)) is not None else []
    if (usage := sum_usages([*ended, *between])) is not None:
        response.chat_usage.CopyFrom(usage)
    if (usage := sum_usages(between)) is not None:
        response.between_runs_usage.CopyFrom(usage)


def describe_compaction(compaction: AppliedCompaction, counter: TokenCounter) -> agent_pb2.ContextCompaction:
    metadata, receipt = compaction.boundary.compact_metadata, compaction.boundary.compact_metadata.receipt
    return agent_pb2.ContextCompaction(
        n=compaction.summary.n,
        run_id=compaction.boundary.run_id,
        trigger=metadata.trigger,
        strategy=metadata.strategy,
        pre_tokens=metadata.pre_tokens,
        post_tokens=metadata.post_tokens,
        files_included=metadata.files_included,
        receipt=None if receipt is None else to_event(receipt),
        sections=[
            agent_pb2.ContextSection(title=title, tokens=counter.to_model_tokens(counter.count_text(text)))
            for title, text in _list_sections(compaction)
        ],
        is_edited=compaction.changes.edit is not None,
        created_at=compaction.summary.updated_at,
    )


def _list_sections(compaction: AppliedCompaction) -> Iterator[tuple[str, str]]:
    before, summary, after = split_content(compaction.changes.apply_to(compaction.summary.content))
    first, *sections = split_sections(summary)
    beginning = "\n\n".join(filter(None, [before, first[1]]))
    if beginning:
        yield "", beginning
    yield from sections
    if after:
        yield BEHIND, after
