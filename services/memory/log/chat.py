"""A chat loaded from its log, and the checks of its next append."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.errors import ChatBusy, InvalidRequest, LogDamaged, NotFound, PermissionDenied, StaleLease
from services.memory.log import views
from services.memory.log.chat_info import SCOPE_ALL, ChatInfo, CompactionBases, RunInfo, read_info
from services.memory.log.lines import (
    CompactBoundary,
    Known,
    Line,
    Pin,
    Query,
    Revert,
    Revocation,
    Sharing,
    State,
    Step,
    SummaryEdit,
    Title,
)
from services.memory.log.raw_json import QUERY_FIELDS
from services.memory.log.sealing import NO_LINK
from services.memory.log.views import SessionState, Timeline
from services.runtime.auth.access import find_access, find_keyed_chat, is_keyed_chat
from services.runtime.auth.identity import Identity
from services.runtime.clock import now_ms

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_OWN = State | Revert | CompactBoundary | Pin | SummaryEdit | Title | Sharing | Revocation
"""Lines that belong to the chat itself if no run writes them."""


@dataclass(frozen=True, slots=True)
class Span:
    first_n: int
    last_n: int
    checkpoint: int
    """The first checkpoint that its lines create, or would create."""


@dataclass(slots=True, weakref_slot=True, eq=False)
class Chat:
    """A chat in use, on the event loop only. While an append is being written, `info` may be ahead of the disk; the
    lines never are."""

    chat_id: str
    info: ChatInfo
    size_bytes: int = 0
    """Acknowledged length of the log file."""
    link: bytes = NO_LINK
    """Reference to the last line that the next one must contain, if lines are sealed; see log/sealing.py."""
    log: list[Line] = field(default_factory=list[Line])
    model_runs: dict[str, list[Line]] = field(default_factory=dict[str, "list[Line]"])
    """The lines for a model, by run in the order of first lines."""
    visible_runs: dict[str, list[Line]] = field(default_factory=dict[str, "list[Line]"])
    """The lines for people, by run; the same object as `model_runs` until a revert."""
    states: dict[str, SessionState] = field(default_factory=dict[str, SessionState])
    """Session state by context; the run's own has the empty id."""
    appends: dict[str, Span] = field(default_factory=dict[str, Span])
    """Committed and staged appends by request id, the uuid of their first line."""
    bases: CompactionBases = field(default_factory=CompactionBases)
    """Computed from the lines only, while `info` may be ahead."""
    is_deleted: bool = False
    _timeline: Timeline = field(default_factory=Timeline)

    @classmethod
    def from_lines(cls, chat_id: str, lines: list[Line], size_bytes: int, *, is_damaged: bool) -> Chat:
        chat = cls(chat_id, ChatInfo(chat_id, is_damaged=is_damaged), size_bytes)
        chat.append_committed(lines)
        return chat

    @classmethod
    def empty(cls, chat_id: str) -> Chat:
        return cls(chat_id, ChatInfo(chat_id))

    @property
    def is_reverted(self) -> bool:
        return self.visible_runs is not self.model_runs

    def append_committed(self, lines: Sequence[Line]) -> None:
        """Add lines committed without checks: a log's, or another process's."""
        for line in lines:
            self.appends[line.uuid] = Span(line.n, line.n + line.lines - 1, self.info.checkpoints)
            self.info.add_line(line)
        self.commit_lines(lines)

    def admit(
        self,
        lines: Sequence[Known],
        lease_generation: int,
        beside: Collection[str] | None = None,
        writer: Identity | None = None,
    ) -> Span | str:
        """Check an append and number its lines, to be committed now, or rolled back with its facts.

        `writer` has the roles of the caller. A repeated append returns its first result, or the run with its query's
        request id; a title for untitled chats returns an empty Span if there is one. Raises the errors of `check`, and
        ChatBusy if an unfinished run is not in `beside`.
        """
        first = lines[0]
        if self.info.last_n:
            self._check_writer(first, writer)
        if known := self.appends.get(first.uuid):
            return known
        if run_id := self.find_duplicate(lines):
            return run_id
        if isinstance(first, Title) and first.if_untitled and self.info.given_title is not None:
            return Span(0, 0, self.info.checkpoints)  # decided here, where no rename can come in between
        self.check(lines, lease_generation)
        if beside is not None:
            # Based only on the log, so that the serial writer of lines decides; leases are stored elsewhere.
            busy = (run.run_id for run in self.info.list_unfinished() if run.run_id not in beside)
            if run_id := next(busy, None):
                raise ChatBusy(f"run {run_id} of chat {self.chat_id} is another owner's", runId=run_id)
        checkpoint = self.info.checkpoints
        # Times never decrease, whatever the clock does.
        updated_at = max(now_ms(), self.info.updated_at)
        for line in lines:
            line.n, line.updated_at = self.info.last_n + 1, updated_at
            self.info.add_line(line)
        self.appends[first.uuid] = Span(first.n, lines[-1].n, checkpoint)
        return self.appends[first.uuid]

    def _check_writer(self, first: Known, known: Identity | None) -> None:
        """Refuse lines that the writer may not write: a run's lines are its own user's, all others the owner's.

        Participants begin runs, and compact after them. A run continues after its user stops participating.
        """
        info, writer = self.info, Identity.from_stored(first.tenant, first.user)
        if writer == info.owner:
            return
        if writer.tenant == info.owner.tenant:
            run = info.runs.get(first.run_id)
            if run is not None and run.user == writer.user and not isinstance(first, Query):
                return
            writer = known if known == writer and known is not None else writer  # who has roles too
            if isinstance(first, Query | CompactBoundary):
                check_participant(self.chat_id, info, writer)
                return
        raise chat_not_found(self.chat_id)

    def check_delete(self) -> None:
        if self.is_deleted or not self.info.last_n:
            raise chat_not_found(self.chat_id)
        self.check_idle()

    def check_idle(self) -> None:
        """Raise ChatBusy if a run has not ended."""
        self._check_idle(self.info.list_unfinished())

    def reload(self, lines: list[Line], size_bytes: int) -> None:
        """Replace the lines, because those of the log were replaced."""
        self.info = ChatInfo(self.chat_id)
        self.size_bytes = size_bytes
        self.log, self.model_runs, self.states, self.appends = [], {}, {}, {}
        self.visible_runs = self.model_runs
        self.bases, self._timeline = CompactionBases(), Timeline()
        self.append_committed(lines)

    def _check_idle(self, busy: Sequence[RunInfo]) -> None:
        if busy:
            raise ChatBusy(
                f"run {busy[0].run_id} of chat {self.chat_id} has not ended; cancel it first",
                chatId=self.chat_id,
                runId=busy[0].run_id,
            )

    def commit_lines(self, lines: Sequence[Line]) -> None:
        self.log.extend(lines)
        for line in lines:
            self._timeline.add_line(line)
            self.bases.add_line(line)
        if any(isinstance(line, Revert) for line in lines):
            self._rebuild_views()
        else:
            for line in lines:
                self.model_runs.setdefault(line.run_id, []).append(line)
                if self.is_reverted:
                    self.visible_runs.setdefault(line.run_id, []).append(line)
                views.update_states(self.states, line)

    def get_state(self, context: str) -> SessionState:
        return self.states.get(context, SessionState())

    def list_checkpoints(self) -> list[Query | Step]:
        """List the lines that follow a checkpoint, by the checkpoints' ids."""
        return self._timeline.list_checkpoints()

    def copy_runs(self) -> dict[str, Sequence[Line]]:
        return {run_id: list(lines) for run_id, lines in self.model_runs.items()}

    def find_duplicate(self, lines: Sequence[Known]) -> str | None:
        first = lines[0]
        request_id = QUERY_FIELDS.decode(first.query).request_id if isinstance(first, Query) else ""
        return self.info.find_run_by_request(request_id, first.user) if request_id else None

    def check(self, lines: Sequence[Known], lease_generation: int = 0) -> None:
        """Refuse lines that this log cannot accept; `lease_generation` is that of the run's lease."""
        first, chat_id = lines[0], self.chat_id
        if self.is_deleted or (not self.info.last_n and not isinstance(first, Query)):
            raise chat_not_found(chat_id)
        if self.info.is_damaged:
            raise LogDamaged(f"the log of chat {chat_id} is damaged; it can be read, not written", chatId=chat_id)
        if first.run_id or not isinstance(first, _OWN):
            self._check_run(first, lease_generation)
        if isinstance(first, Revert):
            is_before_run = first.run_id and first.scope != SCOPE_ALL
            self._check_idle(self.info.list_begun() if is_before_run else self.info.list_unfinished())
        if isinstance(first, Query) and not self.info.last_n and is_keyed_chat(chat_id):
            # An id derived from a key requires that key, and the user it was derived for.
            key = QUERY_FIELDS.decode(first.query).chat_key
            if not key or find_keyed_chat(Identity.from_stored(first.tenant, first.user), key) != chat_id:
                raise InvalidRequest.of("chatId", "must be a chat that exists: ids of version 8 are made of a chatKey")
        self._check_position(first)

    def _check_run(self, first: Known, lease_generation: int) -> None:
        run = self.info.runs.get(first.run_id)
        if isinstance(first, Query):
            if run is not None:
                raise InvalidRequest.of("lines[0].query", f"must be the run's only one: run {run.run_id} has started")
        elif run is None:
            raise run_not_found(first.run_id, self.chat_id)
        elif run.is_ended:
            raise StaleLease(f"run {run.run_id} has ended and takes no more lines", runId=run.run_id)
        elif first.generation < (generation := max(run.generation, lease_generation)):
            raise StaleLease(
                f"run {run.run_id} was taken over with generation {generation}; {first.generation} is stale",
                runId=run.run_id,
                generation=generation,
            )

    def _check_position(self, line: Known) -> None:
        if isinstance(line, Revert) and not 0 <= line.to_checkpoint_id < self.info.checkpoints:
            raise NotFound(
                f"chat {self.chat_id} has no checkpoint {line.to_checkpoint_id}; it has {self.info.checkpoints}",
                chatId=self.chat_id,
                checkpointId=line.to_checkpoint_id,
            )
        if isinstance(line, CompactBoundary) and not line.has_failed:
            base = self.info.bases.find(line.context_id)
            if (line.parent_uuid, line.redactions) != base:
                raise StaleLease("the context was compacted, reverted or redacted in the meantime", chatId=self.chat_id)
        if isinstance(line, State):
            version = self.info.state_versions.get(line.context_id or "", 0)
            if line.version != version + 1:
                raise views.stale_state_error(self.chat_id, version)

    def _rebuild_views(self) -> None:
        lines = self._timeline.list_for_model()
        self.model_runs, self.visible_runs = _group_by_run(lines), _group_by_run(self._timeline.list_visible())
        # A revert is a change of every state.
        versions = read_info(self.chat_id, self.log).state_versions
        values = views.read_states(lines)
        self.states = {key: SessionState(values.get(key, SessionState()).values, versions[key]) for key in versions}

    def __post_init__(self) -> None:
        self.visible_runs = self.model_runs  # one and the same, until something is reverted


def chat_not_found(chat_id: str) -> NotFound:
    return NotFound(f"chat {chat_id} does not exist", chatId=chat_id)


def check_participant(chat_id: str, info: ChatInfo, user: Identity) -> None:
    """Raise NotFound for a chat that `user` may not read, PermissionDenied for one that the user may only read."""
    match find_access(user, info.owner, info.shared_with, info.participants):
        case "":
            raise chat_not_found(chat_id)
        case "read":
            raise PermissionDenied("this chat is shared with you to read, not to take part", chatId=chat_id)
        case _:
            pass


def run_not_found(run_id: str, chat_id: str) -> NotFound:
    return NotFound(f"run {run_id} has no query line in chat {chat_id}", runId=run_id)


def check_run_chat(run_id: str, chat_id: str, known: str | None) -> None:
    """Raise NotFound if the run is known to belong to another chat."""
    if known not in (None, chat_id):
        raise run_not_found(run_id, chat_id)


def _group_by_run(lines: Sequence[Line]) -> dict[str, list[Line]]:
    runs: dict[str, list[Line]] = {}
    for line in lines:
        runs.setdefault(line.run_id, []).append(line)
    return runs
