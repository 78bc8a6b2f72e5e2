"""A chat's names, owner and runs, folded from the log and small enough to keep for every chat."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from services.memory.log.grants import GrantInfo, fold_grants
from services.memory.log.lines import (
    ERASED_PREFIX,
    CompactBoundary,
    Event,
    Line,
    Query,
    Revert,
    Run,
    Sharing,
    State,
    Step,
    Title,
    Unknown,
)
from services.memory.log.messages import Range
from services.memory.log.raw_json import QUERY_FIELDS
from services.runtime.auth.identity import DEFAULT, Identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from services.memory.log.lines import Charge

TITLE_CODE_POINTS = 60
EMPTY = "New chat"

_READ_CODE_POINTS = 1000
"""Code points of a message used to make a title; the message may have megabytes."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def make_chat_name(message: str) -> str:
    """Return the message's first words with collapsed white space, up to 60 code points, cut between words."""
    words = clean_title(message.lstrip()[:_READ_CODE_POINTS])
    if len(words) <= TITLE_CODE_POINTS:
        return words or EMPTY
    end = words.rfind(" ", 0, TITLE_CODE_POINTS + 1)
    # Texts without spaces, and URLs, are cut anywhere, because the last space may be far before.
    return words[: end if end >= TITLE_CODE_POINTS // 2 else TITLE_CODE_POINTS]


def clean_title(text: str) -> str:
    """Return a text with single spaces, which also replace control characters, because terminals interpret those."""
    return " ".join(_CONTROL.sub(" ", text).split())


SCOPE_ALL = "all"
"""The scope of a revert that people see as well."""


class _EventFields(msgspec.Struct, gc=False):
    seq: int = 0
    type: str = ""


_CHARGED = ("model_calls", "input_tokens", "output_tokens", "cost_nano_usd")
"""Fields of charges that are summed up per run."""

_EVENT_FIELDS = msgspec.json.Decoder(_EventFields)


@dataclass(frozen=True, slots=True)
class RunInfo:
    run_id: str
    request_id: str
    agent_key: str
    started_at: int
    """Commit time of the query line, Unix milliseconds."""
    generation: int
    """The last writer's generation; lower ones are refused."""
    last_seq: int
    """The last event that the lines cover or imply."""
    checkpoint: int
    """The current id of the checkpoint before its query."""
    has_begun: bool = False
    """Whether it has written a step."""
    has_gates: bool = False
    """Whether it has ever waited for a person."""
    has_charges: bool = False
    """Whether its lines contain the cost of each model call."""
    credential: str = ""
    user: str = ""
    """The user who asked, of the chat's tenant."""
    is_ended: bool = False
    state: str = ""
    """Its end state: completed, cancelled or failed; empty while it is active."""
    reason: str = ""
    """A completed run's finish reason, or a failed one's error code; else empty."""
    updated_at: int = 0
    """Commit time of its last line, Unix milliseconds."""
    model_calls: int = 0
    """Sum of the charges in its lines, like the three fields that follow."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_nano_usd: int = 0

    def add_charges(self, charges: Sequence[Charge]) -> RunInfo:
        if not charges:
            return self
        added = {name: getattr(self, name) + sum(map(attrgetter(name), charges)) for name in _CHARGED}
        return replace(self, **added)


class CompactionBase(NamedTuple):
    """The state on which a context's next compaction must be based."""

    uuid: str
    """Uuid of the line; empty if there is none."""
    redactions: int
    """Number of redacted runs of erased users; a view read earlier may still contain their words."""


@dataclass(slots=True)
class CompactionBases:
    """The lines that compactions must follow, so that none is based on a view that has changed."""

    boundaries: dict[str, str] = field(default_factory=dict[str, str])
    """Uuids of the last compactions' boundaries by context, without those before the last revert."""
    revert: str = ""
    """Uuid of the last revert, which changes what every context shows."""
    redactions: int = 0

    def add_line(self, line: Line) -> None:
        if isinstance(line, CompactBoundary) and not line.has_failed:
            self.boundaries[line.context_id or ""] = line.uuid
        elif isinstance(line, Revert):
            self.boundaries, self.revert = {}, line.uuid
        elif isinstance(line, Query) and line.user.startswith(ERASED_PREFIX):
            self.redactions += 1

    def find(self, context_id: str | None) -> CompactionBase:
        return CompactionBase(self.boundaries.get(context_id or "", self.revert), self.redactions)

    def copy(self) -> CompactionBases:
        return CompactionBases(dict(self.boundaries), self.revert, self.redactions)


@dataclass(slots=True)
class ChatInfo:
    chat_id: str
    owner: Identity = DEFAULT
    name: str = make_chat_name("")
    given_title: str | None = None
    """The title last given to the chat; empty if it was removed, None if there never was one."""
    shared_with: Sequence[str] = ()
    participants: Sequence[str] = ()
    """The users in `shared_with` who may participate."""
    first_agent_key: str = ""
    created_at: int = 0
    updated_at: int = 0
    last_n: int = 0
    is_damaged: bool = False
    runs: dict[str, RunInfo] = field(default_factory=dict[str, RunInfo])
    checkpoints: int = 0
    """Number of checkpoints, one before each visible query and step, with ids from 0."""
    state_versions: dict[str, int] = field(default_factory=dict[str, int])
    bases: CompactionBases = field(default_factory=CompactionBases)
    grants: dict[str, GrantInfo] = field(default_factory=dict[str, GrantInfo])
    """All grants ever made, by id."""

    @property
    def title(self) -> str:
        return self.given_title or self.name

    @property
    def last_agent_key(self) -> str:
        return self.runs[next(reversed(self.runs))].agent_key if self.runs else ""

    def find_requester(self, run_id: str) -> str:
        """Return the run's user, or the chat's owner if the log does not record one."""
        run = self.runs.get(run_id)
        return run.user if run is not None and run.user else self.owner.user

    def has_run_of(self, user: str) -> bool:
        """Return whether this user has an unfinished run."""
        return any(run.user == user for run in self.list_unfinished())

    def find_run_by_request(self, request_id: str, user: str) -> str | None:
        """Return the run of this user's query; participants choose request ids of their own."""
        named = (run for run in self.runs.values() if run.request_id == request_id)
        return next((run.run_id for run in named if self.find_requester(run.run_id) == user), None)

    def list_unfinished(self) -> list[RunInfo]:
        """List runs to take over; none in a damaged log, which accepts no lines."""
        return [] if self.is_damaged else [run for run in self.runs.values() if not run.is_ended]

    def list_begun(self) -> list[RunInfo]:
        """List unfinished runs that have started, as opposed to waiting for their turn."""
        return [run for run in self.list_unfinished() if run.has_begun]

    def copy(self) -> ChatInfo:
        return replace(
            self,
            runs=dict(self.runs),
            state_versions=dict(self.state_versions),
            bases=self.bases.copy(),
            grants=dict(self.grants),
        )

    def add_line(self, line: Line) -> None:
        self.last_n = line.n
        self.updated_at = line.updated_at
        self.created_at = self.created_at or line.updated_at
        self.bases.add_line(line)
        run = self.runs.get(line.run_id)
        fold_grants(self.grants, line, self.checkpoints, may_make=run is not None and run.has_gates)
        if isinstance(line, Query):
            self._add_query(line)
        else:
            self._add_position(line)
        if not isinstance(line, Query | Unknown) and (run := self.runs.get(line.run_id)):
            state = reason = ""
            if isinstance(line, Run):
                state, reason = line.state, line.reason
            opens_gate = isinstance(line, Event) and _EVENT_FIELDS.decode(line.event).type == "gate.open"
            self.runs[run.run_id] = replace(
                run.add_charges(line.charges or ()),
                generation=line.generation,
                last_seq=max(run.last_seq, get_last_seq(line)),
                has_begun=run.has_begun or isinstance(line, Step),
                has_gates=run.has_gates or opens_gate,
                has_charges=run.has_charges or line.charges is not None,
                is_ended=isinstance(line, Run),
                state=state,
                reason=reason,
                updated_at=line.updated_at,
            )

    def _add_query(self, line: Query) -> None:
        asked = QUERY_FIELDS.decode(line.query)
        if not self.runs:
            self.owner = Identity.from_stored(line.tenant, line.owner or line.user)
            self.name = make_chat_name(asked.message)
            self.first_agent_key = asked.agent_key
        self.runs[line.run_id] = RunInfo(
            run_id=line.run_id,
            request_id=asked.request_id,
            agent_key=asked.agent_key,
            started_at=line.updated_at,
            generation=line.generation,
            last_seq=count_derived_events(line),
            checkpoint=self.checkpoints,
            has_charges=line.charges is not None,
            credential=line.credential,
            user=Identity.from_stored(line.tenant, line.user).user,
            updated_at=line.updated_at,
        ).add_charges(line.charges or ())
        self.checkpoints += 1

    def _add_position(self, line: Line) -> None:
        match line:
            case Step():
                self.checkpoints += 1
            case Title():
                self.given_title = line.text
            case Sharing():
                self.shared_with, self.participants = line.shared_with, line.participants
            case State():
                self.state_versions[line.context_id or ""] = line.version
            case Revert():
                self.state_versions = {key: version + 1 for key, version in self.state_versions.items()}
                if line.scope == SCOPE_ALL:
                    self.checkpoints = line.to_checkpoint_id
                    for run in self.runs.values():
                        if not run.is_ended and run.checkpoint >= line.to_checkpoint_id:
                            self.runs[run.run_id] = replace(run, checkpoint=self.checkpoints)
                            self.checkpoints += 1
            case _:
                pass


def read_info(chat_id: str, lines: Iterable[Line], *, is_damaged: bool = False) -> ChatInfo:
    facts = ChatInfo(chat_id, is_damaged=is_damaged)
    for line in lines:
        facts.add_line(line)
    return facts


def count_derived_events(line: Query) -> int:
    """Return the number of events that a query line implies: request.query, chat.start in a new chat, run.start."""
    return 3 if line.n == 1 else 2


def get_last_seq(line: Line) -> int:
    match line:
        case Step():
            return max(_get_last(line.events), *(_get_last(message.events) for message in line.messages), 0)
        case Event():
            return _EVENT_FIELDS.decode(line.event).seq
        case Run():
            return line.events.last
        case _:
            return 0


def _get_last(events: Range | None) -> int:
    return events.last if events else 0
