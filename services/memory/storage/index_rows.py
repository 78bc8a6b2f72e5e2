"""A chat in the index: its own row, its runs, and its searched texts; and the progress of an index that is built while
its store serves requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from headrace.errors import IndexIncomplete
from headrace.v1 import common_pb2
from services.memory.log.chat_info import RunInfo
from services.memory.log.lines import CompactSummary, Insight, Line, Query, Step, Title
from services.memory.log.messages import join_text
from services.memory.log.raw_json import QUERY_FIELDS
from services.memory.storage.event_rows import NO_EVENTS, EventChange, fold_events
from services.memory.storage.gates.rows import GateChange, fold_gates, make_grant_rows
from services.memory.storage.spend import SpendRow, fold_spend
from services.runtime.auth.identity import Identity

if TYPE_CHECKING:
    from services.memory.log.chat import Chat
    from services.memory.storage.leases import Lease

TEXT_CHARS_MAX = 100_000
"""Maximum characters of one line that are searched; a longer one is a pasted file, which would fill the index."""

UNCHANGED_MAX = 10_000
"""Chats that retention reads at a time."""

UNCHANGED = f"""
SELECT {{columns}} FROM chats WHERE updated_at < $1 AND (updated_at, chat_id) > ($2, $3)
AND NOT EXISTS (SELECT 1 FROM runs WHERE {{is_of_chat}} AND NOT is_ended)
ORDER BY updated_at, chat_id LIMIT {UNCHANGED_MAX}
"""

Kind: TypeAlias = Literal["chat", "insight", "summary"]


@dataclass(frozen=True, slots=True)
class Text:
    n: int
    run_id: str
    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class ChatEntry:
    chat_id: str
    name: str
    title: str
    first_agent_key: str
    last_agent_key: str
    created_at: int
    updated_at: int
    is_damaged: bool
    tenant: str
    user: str
    shared_with: str = ""
    """Names of users who may read it, each between line breaks."""
    participants: str = ""
    """Names of those who may participate, likewise."""

    @property
    def owner(self) -> Identity:
        return Identity(self.tenant, self.user)

    @property
    def shared_names(self) -> list[str]:
        return self.shared_with.split()

    @property
    def participant_names(self) -> list[str]:
        return self.participants.split()


@dataclass(frozen=True, slots=True)
class IndexChange:
    chat: ChatEntry
    size_bytes: int
    """Size of the log, which tells the next start whether the index is complete."""
    mtime_ns: int
    runs: Sequence[RunInfo]
    texts: Sequence[Text]
    is_whole: bool = False
    """Whether runs and texts missing from the change are deleted."""
    leases: Mapping[str, Lease] = field(default_factory=dict[str, "Lease"])
    gates: GateChange = GateChange()
    spend: Sequence[SpendRow] = ()
    """Added to the chat's spending; in a whole change, all of it."""
    events: EventChange = NO_EVENTS


@dataclass(frozen=True, slots=True)
class UnfinishedEntry:
    chat_id: str
    run_id: str
    agent_key: str
    generation: int
    last_seq: int
    owner: str = ""
    expires_at: int = 0
    tenant: str = ""
    user: str = ""
    """The user who asked."""
    chat_owner: str = ""


def make_change(chat: Chat, lines: Sequence[Line], mtime_ns: int) -> IndexChange:
    """Return the index change for `lines`, just committed; for the whole chat if they change other lines' texts."""
    facts = chat.info
    events = fold_events(facts, lines)
    if chat.is_reverted or any(isinstance(line, Title) for line in lines):
        return replace(make_full_change(chat, mtime_ns), events=events)
    runs = [facts.runs[run_id] for run_id in {line.run_id: None for line in lines} if run_id in facts.runs]
    gates = replace(fold_gates(facts, lines), grants=make_grant_rows(facts, lines[0].n))
    spend, texts = fold_spend(facts, lines), extract_texts(lines)
    return IndexChange(
        _make_entry(chat), chat.size_bytes, mtime_ns, runs, texts, gates=gates, spend=spend, events=events
    )


def make_full_change(chat: Chat, mtime_ns: int) -> IndexChange:
    runs = list(chat.info.runs.values())
    shown = sorted((line for lines in chat.visible_runs.values() for line in lines), key=lambda line: line.n)
    # Including reverted runs, because decisions stay. All gates are included, so none is left to be closed.
    gates = GateChange(fold_gates(chat.info, chat.log).opened, grants=make_grant_rows(chat.info, 0))
    # The title that the chat was given last is the text of a line 0; the first words are their query's.
    title = [Text(0, "", "chat", chat.info.given_title)] if chat.info.given_title else []
    texts = [*title, *extract_texts(shown)]
    spend, events = fold_spend(chat.info, chat.log), fold_events(chat.info, chat.log, is_recovered=True)
    return IndexChange(
        *(_make_entry(chat), chat.size_bytes, mtime_ns, runs, texts),
        is_whole=True,
        gates=gates,
        spend=spend,
        events=events,
    )


def extract_texts(lines: Iterable[Line]) -> list[Text]:
    """Return the searched texts: those of people and models, not tool results."""
    return [found for line in lines if (found := _extract_text(line)).text]


def _make_entry(chat: Chat) -> ChatEntry:
    facts = chat.info
    return ChatEntry(
        chat_id=chat.chat_id,
        name=facts.name,
        title=facts.title,
        first_agent_key=facts.first_agent_key,
        last_agent_key=facts.last_agent_key,
        created_at=facts.created_at,
        updated_at=facts.updated_at,
        is_damaged=facts.is_damaged,
        tenant=facts.owner.tenant,
        user=facts.owner.user,
        shared_with=_join_names(facts.shared_with),
        participants=_join_names(facts.participants),
    )


def _join_names(names: Iterable[str]) -> str:
    return "".join(f"\n{name}\n" for name in names)


def _extract_text(line: Line) -> Text:
    kind: Kind = "chat"
    match line:
        case Query():
            text = QUERY_FIELDS.decode(line.query).message
        case Step():
            texts = (join_text(message.content) for message in line.messages if message.role != "tool")
            text = "\n".join(filter(None, texts))
        case Insight():
            kind, text = "insight", line.text
        case CompactSummary():
            kind, text = "summary", line.content
        case _:
            text = ""
    # NUL is in no text that anybody looks for, and not every index can hold it.
    return Text(line.n, line.run_id, kind, text[:TEXT_CHARS_MAX].replace("\0", " "))


RETRY_AFTER_S = 2.0
"""Suggested to callers who must wait for the whole index."""


@dataclass(frozen=True, slots=True)
class IndexProgress:
    chats_done: int
    chats: int

    def make_error(self, wanted: str) -> IndexIncomplete:
        """Create the error for a call that cannot know `wanted` yet."""
        return IndexIncomplete(
            f"{wanted} is not known before the index is made: {self.chats_done} of {self.chats} chats; try again later",
            retry_after_s=RETRY_AFTER_S,
            chatsDone=self.chats_done,
            chats=self.chats,
        )


def describe_progress(progress: IndexProgress | None) -> common_pb2.IndexProgress | None:
    """Return, for callers, the index's progress before their list was read."""
    return progress and common_pb2.IndexProgress(chats_done=progress.chats_done, chats=progress.chats)
