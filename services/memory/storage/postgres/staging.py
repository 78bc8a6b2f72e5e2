"""The effect of one transaction on a chat, checked against the chat as this process knows it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from headrace.errors import HeadraceError
from services.memory.log.chat import Chat, Span
from services.memory.log.encryption.lines import encode_lines
from services.memory.log.lines import Known, Query, Revert, Title
from services.memory.storage.encrypted.rows import RowCipher
from services.memory.storage.event_rows import fold_events
from services.memory.storage.index_rows import IndexChange, make_change, make_full_change

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from services.memory.encryption.keyring import Keyring
    from services.memory.log.views.chat_info import ChatInfo
    from services.memory.storage.leases import Lease
    from services.runtime.auth.identity import Identity


@dataclass(frozen=True, slots=True)
class Append:
    lines: list[Known]
    lease: Lease | None
    beside: Collection[str] | None
    cost_bytes: int
    done: asyncio.Future[tuple[Chat, Span | str]]
    writer: Identity | None = None
    """Who appends, with roles; None: a service on its own account."""

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
    """Whether storing it has made deliveries to webhooks."""
    link: bytes = field(init=False)
    _before: ChatInfo = field(init=False)

    def __post_init__(self) -> None:
        self.link = self.chat.link
        self._before = self.chat.info.copy()

    @classmethod
    def stage(
        cls, chat: Chat, appends: Sequence[Append], generations: Mapping[str, int], keys: Keyring
    ) -> StagedAppends:
        """Check `appends` in order; `generations` are known ones of the runs' leases."""
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
        """Whether one statement can store it, whose success confirms all answers. Reverts and titles
        are not: they change other lines' texts."""
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
