"""The lines of one context of a run since its last compaction.

Runs are in the order of their queries, and a run sees nothing of later ones. For sub-agents and plan tasks see
scopes.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from headrace.errors import NotFound
from services.memory.context.pairing import (
    LEFT_OUT,
    QUOTE,
    SPOKEN,
    MessageGroup,
    MessagePairing,
    PairedMessage,
    Position,
    Reasoning,
    format_notice,
    make_text_message,
)
from services.memory.context.queries import (
    NOTE,
    QUERY_TEXTS,
    find_speaker,
    find_steers,
    has_speakers,
    name_speakers,
    quote_earlier_messages,
    read_instructions,
)
from services.memory.context.scopes import AppliedCompaction, ContextScope, find_changes, find_scope, list_compactions
from services.memory.log.lines import STAGES_BEFORE_ANSWER, CompactSummary, Line, Query, Run, Step
from services.runtime.formats.own_tags import neutralise_tag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.v1 import llm_pb2

COMPACT = "/compact"
"""A user message that asks for a compaction, hidden from models."""

HIDDEN_STAGES = frozenset({"compact", "verify", "mode"})
"""Stages hidden from every request: a compaction, a corrected draft answer, and a mode's separate values."""

FILTER_REASONS = ("content_filter", "CONTENT_FILTERED")
"""How a run ends that the provider's filter refuses, in its answer or in its request."""

FILTERED = "[A question is left out here, with its answer: the provider's filter refused it.]"
"""Replaces a run in later requests, which the filter would refuse, too
(https://platform.claude.com/docs/en/test-and-evaluate/strengthen-guardrails/handle-streaming-refusals, 2026-11;
https://github.com/MarimerLLC/rockbot/pull/207, 2026-03)."""

HIDDEN_STAGES_LATER = HIDDEN_STAGES | STAGES_BEFORE_ANSWER
"""Stages hidden from later runs, which see only a planned run's query and final answer."""


@dataclass(frozen=True, slots=True)
class ContextSource:
    run_id: str
    scope: ContextScope
    lines: Sequence[Line]
    before: Sequence[Sequence[Line]]
    """The lines of earlier runs; only a part of the first may apply."""
    compactions: Sequence[AppliedCompaction] = ()
    """All compactions of the context; the one that reaches furthest comes last."""
    compacted: AppliedCompaction | None = None
    """The last of them, after which the context begins; None if compactions are ignored."""
    instructions: Sequence[str] = ()
    """System messages in callers' queries, of all runs that the context sees; compactions do not remove them."""
    keeps_reasoning: bool = False
    """Whether calls of earlier runs keep their reasoning."""
    has_speakers: bool = False
    """Whether more than one user has asked in it, so that messages name their speaker."""

    @property
    def context_id(self) -> str | None:
        """None for the run's own context."""
        return self.scope.context_id

    def read_all(self) -> list[MessageGroup]:
        """Read the messages of earlier runs, without reasoning, then those of the run itself."""
        return [*self.read_earlier(), *self.read_own_run()]

    def read_log(self) -> list[MessageGroup]:
        """Like read_all, but including the planning steps of earlier runs."""
        scope = ContextScope(None)
        earlier = [group for lines in self.before for group in self._pair_lines(lines, scope, HIDDEN_STAGES)]
        return [*earlier, *self.read_own_run()]

    def read_own_run(self) -> list[MessageGroup]:
        groups = self._pair_lines(self.lines, self.scope, HIDDEN_STAGES, "all")
        return self._cut_compacted(groups, self.lines)

    def read_earlier(self) -> list[MessageGroup]:
        """Read the messages of all earlier runs, the oldest first, without reasoning."""
        return [group for groups in reversed([*self.read_earlier_runs()]) for group in groups]

    def read_earlier_runs(self) -> Iterator[list[MessageGroup]]:
        """Read the messages of each earlier run, the latest first, without reasoning."""
        return map(self._read_earlier_run, reversed(self.before))

    def _read_earlier_run(self, lines: Sequence[Line]) -> list[MessageGroup]:
        scope = ContextScope(None)
        reasoning: Reasoning = "of calls" if self.keeps_reasoning else "none"
        groups = self._cut_compacted(self._pair_lines(lines, scope, HIDDEN_STAGES_LATER, reasoning), lines)
        groups = _replace_filtered(groups, lines)
        first_n = 0 if self.compacted is None or not _holds(lines, self.compacted.start) else self.compacted.start.n
        hidden = [line.n for line in lines if line.n >= first_n and _is_before_answer(line, scope)]
        return _note_hidden(groups, hidden[0], hidden[-1]) if hidden else groups

    def _pair_lines(
        self, lines: Sequence[Line], scope: ContextScope, untold: frozenset[str], reasoning: Reasoning = "none"
    ) -> list[MessageGroup]:
        is_others = self.has_speakers and find_speaker(lines) != find_speaker(self.lines)
        groups = _pair_lines(lines, scope, untold, reasoning, is_others)
        if self.has_speakers:
            name_speakers(groups, lines)
        return groups

    def _cut_compacted(self, groups: list[MessageGroup], lines: Sequence[Line]) -> list[MessageGroup]:
        if self.compacted is None or not _holds(lines, self.compacted.start):
            return groups
        return keep_since(groups, self.compacted.start)


def select_source(runs: Mapping[str, Sequence[Line]], run_id: str, context_id: str | None) -> ContextSource:
    """Select the context of a run since its last compaction.

    `runs` are a chat's lines by run in query order; lines of no run have the empty id.

    Raises:
        NotFound: The chat has no such run.
    """
    whole = select_whole(runs, run_id, context_id)
    if not whole.compactions:
        return whole
    compacted = whole.compactions[-1]
    first = next((i for i, lines in enumerate(whole.before) if _holds(lines, compacted.start)), None)
    if whole.scope.is_main:
        changes = find_changes(runs.get("", ()), compacted.summary.uuid, compacted.start.n)
        compacted = replace(compacted, changes=changes)
    return replace(whole, before=[] if first is None else whole.before[first:], compacted=compacted)


def select_whole(runs: Mapping[str, Sequence[Line]], run_id: str, context_id: str | None) -> ContextSource:
    """Select the context of a run, ignoring compactions; see select_source."""
    if run_id not in runs:
        raise NotFound(f"run {run_id} does not exist in the chat", runId=run_id)
    own = runs[run_id]
    scope = find_scope(context_id, own)
    # A sub-agent begins with the messages of its first step.
    ids = [key for key in takewhile(lambda key: key != run_id, runs) if key] if scope.is_main else []
    before = [runs[key] for key in ids]
    # Compactions between runs belong to no run; those after a later run do not apply to this one.
    between = [
        line for line in runs.get("", ()) if not isinstance(line, CompactSummary) or line.retained_from.n <= own[-1].n
    ]
    compactions = list_compactions([*before, own, between], scope)
    # A participant's instructions apply only to that participant's runs.
    asker = find_speaker(own)
    theirs = [lines for lines in (*before, own) if find_speaker(lines) == asker] if scope.is_main else []
    instructions = [neutralise_tag(text, "system_reminder") for lines in theirs for text in read_instructions(lines)]
    is_shared = scope.is_main and has_speakers([*before, own])
    instructions += [NOTE] if is_shared else []
    return ContextSource(run_id, scope, own, before, compactions, instructions=instructions, has_speakers=is_shared)


def _holds(lines: Sequence[Line], position: Position) -> bool:
    return any(line.n == position.n for line in lines)


def _is_before_answer(line: Line, scope: ContextScope) -> bool:
    return isinstance(line, Step) and line.stage in STAGES_BEFORE_ANSWER and scope.includes(line.context_id, line.n)


def _replace_filtered(groups: list[MessageGroup], lines: Sequence[Line]) -> list[MessageGroup]:
    """Replace the question of a run that the provider's filter ended, and what followed it, by a notice."""
    if not any(isinstance(line, Run) and line.reason in FILTER_REASONS for line in lines):
        return groups
    asked = next((line for line in lines if isinstance(line, Query)), None)
    start = Position(0, 0) if asked is None else Position(asked.n, len(QUERY_TEXTS.decode(asked.query).history))
    kept = [group for group in groups if get_position(group) < start]
    if len(kept) == len(groups):
        return groups
    notice = PairedMessage(make_text_message("user", FILTERED), groups[len(kept)].head.at, form=FILTERED)
    return [*kept, MessageGroup(notice, is_question=True)]


def _note_hidden(groups: list[MessageGroup], first_n: int, last_n: int) -> list[MessageGroup]:
    """Append a notice of hidden lines to the question, or to a new message if the question was compacted."""
    asked = next(
        (group for group in reversed(groups) if group.role == "user" and get_position(group).n < first_n), None
    )
    if asked is None:
        asked = MessageGroup(PairedMessage(make_text_message("user", ""), Position(first_n, 0)))
        groups = sorted([*groups, asked], key=get_position)
    paired = asked.head
    # Counted separately if the speaker is named: the form distinguishes the two.
    spoken = f" {SPOKEN}" if paired.form == SPOKEN else ""
    asked.hidden, paired.form = (first_n, last_n), f"{LEFT_OUT} {first_n}-{last_n}{spoken}"
    notice, parts = format_notice(first_n, last_n), paired.message.content
    if parts[-1].WhichOneof("part") == "text":
        parts[-1].text = "\n\n".join(filter(None, [parts[-1].text, notice]))
    else:
        parts.add(text=notice)
    return groups


def _pair_lines(
    lines: Sequence[Line], scope: ContextScope, untold: frozenset[str], reasoning: Reasoning, is_others: bool
) -> list[MessageGroup]:
    pairing, steers = MessagePairing(reasoning), find_steers(lines)
    has_task = scope.context_id is None
    for line in lines:
        if isinstance(line, Query) and scope.includes(None, line.n):
            query = QUERY_TEXTS.decode(line.query)
            at = len(query.history)
            if is_others:
                if quote := quote_earlier_messages(query):
                    pairing.add_query(quote, Position(line.n, 0 if at else 1), None, QUOTE)
            else:
                pairing.add_messages([earlier.to_stored() for earlier in query.history], line.n)
            if not is_compact_command(query.message):
                pairing.add_query(query.message, Position(line.n, at), line.tokens)
            if not is_others:
                pairing.add_messages([earlier.to_stored() for earlier in query.progress], line.n, at + 1)
        elif isinstance(line, Step) and line.stage not in untold and scope.includes(line.context_id, line.n):
            pairing.add_reminders(line.reminders)
            # The context of a sub-agent or a task begins with its caller's request.
            is_task = not has_task and line.context_id == scope.context_id
            pairing.add_messages(line.messages, line.n, asked=None if is_task else steers)
            has_task = has_task or is_task
    return pairing.list_groups()


def is_compact_command(text: str) -> bool:
    return text.split(maxsplit=1)[:1] == [COMPACT]


def keep_from(groups: Sequence[MessageGroup], start: int) -> list[MessageGroup]:
    """Return the groups from `start` on, preceded by the question that they answer."""
    if start < len(groups) and groups[start].is_question:
        return list(groups[start:])
    asked = next((group for group in reversed(groups[:start]) if group.is_question), None)
    return [*([] if asked is None else [asked]), *groups[start:]]


def keep_since(groups: Sequence[MessageGroup], start: Position) -> list[MessageGroup]:
    return keep_from(groups, next((i for i, group in enumerate(groups) if get_position(group) >= start), len(groups)))


def get_position(group: MessageGroup) -> Position:
    assert group.head.at is not None, "all that was said is in the log"
    return group.head.at


def list_texts(source: ContextSource) -> list[llm_pb2.Message]:
    """List the messages since the last compaction, after its summary, complete except for images, audio and files."""
    summary = [] if source.compacted is None else [source.compacted.group]
    groups = [*summary, *source.read_all()]
    messages = [paired.message for group in groups for paired in group.list_messages()]
    for message in messages:
        texts = [part for part in message.content if part.text]
        del message.content[:]
        message.content.extend(texts)
    return messages
