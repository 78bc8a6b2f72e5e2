"""The statement that commits chat, lines, runs and texts together, if the chat is unchanged since the writer read
it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.errors import HeadraceError
from services.memory.log.chat import Chat, Span
from services.memory.log.lines import Known, Query, Revert, Title
from services.memory.log.sealing import encode_lines
from services.memory.storage.encrypted.rows import RowCipher
from services.memory.storage.event_rows import fold_events
from services.memory.storage.index_rows import IndexChange, make_change, make_full_change
from services.memory.storage.leases import NO_LEASE
from services.memory.storage.postgres import gates, outbox, spend
from services.memory.storage.postgres.connection.session import strip_nul
from services.memory.storage.search import fold_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from services.memory.encryption.keyring import Keyring
    from services.memory.log.chat_info import ChatInfo, RunInfo
    from services.memory.storage.index_rows import Text
    from services.memory.storage.leases import Lease
    from services.memory.storage.postgres.connection.session import Connection
    from services.runtime.auth.identity import Identity


_STORE = """
WITH chat AS (
    UPDATE chats SET version = version + 1,
        name = $3, first_agent_key = $4, last_agent_key = $5, created_at = $6, updated_at = $7,
        tenant = $25, user_name = $26, title = $27, shared_with = $36, participants = $37
    WHERE id = $1 AND version = $2 AND NOT EXISTS (
        SELECT FROM runs JOIN unnest($8::text[], $9::bigint[]) AS writer(run_id, generation) USING (run_id)
        WHERE runs.chat = $1 AND runs.lease_generation > writer.generation)
    RETURNING id, version
), line AS (
    INSERT INTO lines (chat, n, data)
    SELECT chat.id, line.* FROM chat, unnest($10::bigint[], $11::bytea[]) AS line
), run AS (
    INSERT INTO runs (chat, run_id, agent_key, started_at, generation, last_seq, is_ended,
        owner, lease_generation, expires_at, state, reason, updated_at, model_calls, input_tokens, output_tokens,
        cost_nano_usd, credential, of_tenant, of_user)
    SELECT chat.id, run.*
    FROM chat, unnest($12::text[], $13::text[], $14::bigint[], $15::bigint[],
        $16::bigint[], $17::boolean[], $18::text[], $19::bigint[], $20::bigint[], $28::text[], $29::text[],
        $30::bigint[], $31::bigint[], $32::bigint[], $33::bigint[], $34::bigint[], $35::text[], $38::text[],
        $39::text[]) AS run
    ON CONFLICT (chat, run_id) DO UPDATE
        SET generation = EXCLUDED.generation, last_seq = EXCLUDED.last_seq, is_ended = EXCLUDED.is_ended,
        state = EXCLUDED.state, reason = EXCLUDED.reason, updated_at = EXCLUDED.updated_at,
        model_calls = EXCLUDED.model_calls, input_tokens = EXCLUDED.input_tokens,
        output_tokens = EXCLUDED.output_tokens, cost_nano_usd = EXCLUDED.cost_nano_usd,
        credential = EXCLUDED.credential, of_tenant = EXCLUDED.of_tenant, of_user = EXCLUDED.of_user
), text AS (
    INSERT INTO texts (chat, run_id, kind, text, folded, tenant, user_name)
    SELECT chat.id, text.*, $25, $26 FROM chat, unnest($21::text[], $22::text[], $23::text[], $24::text[]) AS text
)
"""
"""The update waits for the chat's row and then checks it again, so numbers are unique and former owners are fenced."""


DELETE_TEXTS = "DELETE FROM texts WHERE chat = $1 AND tenant = $2"

_FIRST_MARK = 40
"""The first mark after those of _STORE."""

_ANSWER = "SELECT version, 0 FROM chat"


async def store_lines(
    connection: Connection,
    place: tuple[int, int],
    numbered: Sequence[tuple[int, bytes]],
    change: IndexChange,
    writers: Mapping[str, int] | None = None,
    leases: Mapping[str, Lease] | None = None,
) -> int | None:
    """Store lines in the chat at `place` (row, version); return the number of deliveries for their events.

    Returns None, with nothing stored, if the version has changed or a run of `writers` has a lease of a higher
    generation.
    """
    chat, writers, leases = change.chat, writers or {}, leases or {}
    owners = [leases.get(run.run_id, NO_LEASE) for run in change.runs]
    # Most appends do not change gates, spending or events, and leave out these parts to save the database work. Marks
    # are numbered consecutively: each part's begin after those of the previous one.
    gate_values = gates.encode_change(change.gates) if change.gates else ()
    spend_values = (spend.encode_rows(change.spend),) if change.spend else ()
    event_values = outbox.encode_change(change.events) if change.events else ()
    parts = gates.make_store(_FIRST_MARK) if gate_values else ""
    parts += spend.make_store(_FIRST_MARK + len(gate_values)) if spend_values else ""
    if event_values:
        parts += outbox.make_part(_FIRST_MARK + len(gate_values) + len(spend_values))
    if any(run.is_ended for run in change.runs):
        parts += spend.FREE_GRANTS
    stored = await connection.fetchrow(
        _STORE + parts + (outbox.ANSWER if event_values else _ANSWER),
        *place,
        *(
            strip_nul(chat.name),
            strip_nul(chat.first_agent_key),
            strip_nul(chat.last_agent_key),
            chat.created_at,
            chat.updated_at,
        ),
        *(list(writers), list(writers.values())),
        *to_columns(numbered, 2),
        *to_columns(
            (
                (run.run_id, strip_nul(run.agent_key), run.started_at, run.generation, run.last_seq, run.is_ended)
                for run in change.runs
            ),
            6,
        ),
        *to_columns(((strip_nul(lease.owner), lease.generation, lease.expires_at) for lease in owners), 3),
        *to_columns((make_text_row(text) for text in change.texts), 4),
        *(chat.tenant, chat.user, strip_nul(chat.title)),
        *to_columns(map(_make_run_facts, change.runs), 8),
        *(chat.shared_with, chat.participants),
        *to_columns(((chat.tenant, run.user or chat.user) for run in change.runs), 2),
        *gate_values,
        *spend_values,
        *event_values,
    )
    return None if stored is None else stored[1]


def _make_run_facts(run: RunInfo) -> tuple[str | int, ...]:
    """Return the further columns of a run that lists show."""
    sums = (run.model_calls, run.input_tokens, run.output_tokens, run.cost_nano_usd)
    return run.state, strip_nul(run.reason), run.updated_at, *sums, strip_nul(run.credential)


def to_columns(rows: Iterable[Sequence[Any]], count: int) -> list[list[Any]]:
    """Convert rows into arrays of their columns, which a statement accepts in any length."""
    found: list[list[Any]] = [[] for _ in range(count)]
    for row in rows:
        for column, value in zip(found, row, strict=True):
            column.append(value)
    return found


def make_text_row(text: Text) -> tuple[str, str, str, str]:
    clean = strip_nul(text.text)
    return text.run_id, text.kind, clean, fold_text(clean)


@dataclass(frozen=True, slots=True)
class Append:
    lines: list[Known]
    lease: Lease | None
    beside: Collection[str] | None
    cost_bytes: int
    done: asyncio.Future[tuple[Chat, Span | str]]
    writer: Identity | None = None
    """The writer, with roles; None: a service on its own account."""

    def set_answer(self, chat: Chat, answer: Span | str | Exception) -> None:
        if self.done.done():  # its caller may have left
            return
        if isinstance(answer, Exception):
            self.done.set_exception(answer)
        else:
            self.done.set_result((chat, answer))


Answers: TypeAlias = list[tuple[Append, Span | str | Exception]]


@dataclass(slots=True, eq=False)
class StagedAppends:
    """Appends of one chat, whose info is ahead of the database until commit or rollback."""

    chat: Chat
    keys: Keyring
    lines: list[Known] = field(default_factory=list[Known])
    data: list[bytes] = field(default_factory=list[bytes])
    answers: Answers = field(default_factory=list[tuple[Append, Span | str | Exception]])
    leases: dict[str, Lease] = field(default_factory=dict[str, "Lease"])
    has_deliveries: bool = False
    """Whether storing it has created deliveries to webhooks."""
    link: bytes = field(init=False)
    _before: ChatInfo = field(init=False)

    def __post_init__(self) -> None:
        self.link = self.chat.link
        self._before = self.chat.info.copy()

    @classmethod
    def stage(
        cls, chat: Chat, appends: Sequence[Append], generations: Mapping[str, int], keys: Keyring
    ) -> StagedAppends:
        """Check `appends` in order; `generations` are the known ones of the runs' leases."""
        staged = cls(chat, keys)
        try:
            for append in appends:
                staged.admit_append(append, generations)
        except BaseException:
            staged.roll_back()
            raise
        return staged

    def admit_append(self, append: Append, generations: Mapping[str, int]) -> None:
        first = append.lines[0]
        first.n = 0  # it may have been staged before
        try:
            answer = self.chat.admit(append.lines, generations.get(first.run_id, 0), append.beside, append.writer)
        except HeadraceError as error:
            answer = error
        self.answers.append((append, answer))
        if not first.n:
            return
        self.lines += append.lines
        tenant = self.chat.info.owner.tenant
        data, self.link = encode_lines(append.lines, self.keys, tenant, self.link)
        self.data += data
        if append.lease is not None and isinstance(first, Query):
            self.leases[first.run_id] = append.lease

    @property
    def is_plain(self) -> bool:
        """Whether one statement can store it, and its success confirms all results. Reverts and titles cannot, because
        they change other lines' texts."""
        return bool(self.lines) and not self._is_whole

    @property
    def _is_whole(self) -> bool:
        return self.chat.is_reverted or any(isinstance(line, Revert | Title) for line in self.lines)

    def roll_back(self) -> None:
        self.chat.info = self._before
        for append, _ in self.answers:
            if append.lines[0].n:
                self.chat.appends.pop(append.lines[0].uuid, None)

    def make_change(self) -> IndexChange:
        if self._is_whole:
            whole = Chat.from_lines(self.chat.chat_id, [*self.chat.log, *self.lines], 0, is_damaged=False)
            # The events of its other lines were stored with them.
            change = replace(make_full_change(whole, 0), events=fold_events(self.chat.info, self.lines))
        else:
            change = make_change(self.chat, self.lines, 0)
        return RowCipher(self.keys).encrypt_change(change)

    def list_writers(self) -> dict[str, int]:
        """Return the lowest generation of each run's lines, which its lease may not exceed."""
        found: dict[str, int] = {}
        for line in self.lines:
            if line.run_id:
                found[line.run_id] = min(line.generation, found.get(line.run_id, line.generation))
        return found
