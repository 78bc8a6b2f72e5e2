"""Models a PostgreSQL server for clients: sessions, transactions, locks, notifications, crashes and fail-overs.

A transaction is READ COMMITTED until it writes or locks a row; from then until its end, no other transaction writes or
locks, and others wait. The server's callbacks belong to no simulated process, so it continues when its clients die.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable, Iterable
from contextvars import Context
from math import inf
from typing import TYPE_CHECKING, Any

import asyncpg

from services.memory.storage.postgres.connection.session import BEGIN
from trials.simulation.postgres.dialect import Translated, translate
from trials.simulation.postgres.session import Call, Session, SessionSettings
from trials.simulation.postgres.tables import Row, run_statement

if TYPE_CHECKING:
    from trials.simulation.postgres.tables import Tables

_BEGIN = re.compile(r"BEGIN(?P<snapshot> ISOLATION LEVEL REPEATABLE READ)?")
_LISTEN = re.compile(r'LISTEN "?(\w+)"?')
_UNMODELLED = re.compile(r"SET LOCAL |(SET|RESET) statement_timeout|VACUUM ")
"""Statements without an effect for clients of the model."""
_RESET = re.compile(r"SELECT pg_advisory_unlock_all")
_ABOUT_SESSION = {"SELECT pg_backend_pid()": "pid", BEGIN: "began"}
_ADVISORY = re.compile(r"SELECT pg_advisory_xact_lock\(")


class Server:
    def __init__(self, tables: Tables, loop: asyncio.AbstractEventLoop) -> None:
        self.tables, self._loop = tables, loop
        self.is_up = True
        self.has_standby = True
        """Whether the standby answers: without it, no commit is acknowledged."""
        self.is_full = False
        self.on_full: Callable[[], None] = lambda: None
        """Called once when the full disk refuses a statement."""
        self.choose_stall_s: Callable[[], float] = lambda: 0.0
        """Chooses the delay before the next statement begins."""
        self.on_stall: Callable[[], None] = lambda: None
        """Called once when a statement is delayed."""
        self.sessions: dict[int, Session] = {}
        self._began = 1
        self._pids = itertools.count(1)
        self._writing: Session | None = None
        """The session with the writing transaction."""
        self._advisory: dict[object, Session] = {}
        self._waiting: list[tuple[Session, Call]] = []
        """Calls that wait for a lock, in order."""
        self._committing: tuple[Session, Call, Callable[[], None]] | None = None
        """The commit that waits for the standby, and the function that completes it."""

    def open_session(
        self, settings: SessionSettings, notify: Callable[[int, str, str], None], lose: Callable[[Exception], None]
    ) -> Session:
        session = Session(next(self._pids), self._began, settings, notify, lose)
        self.sessions[session.pid] = session
        return session

    def receive(self, session: Session, call: Call) -> None:
        """Execute a client's call; the answer may come later."""
        if session.is_lost:
            return
        _stop(session.idle)
        if stall_s := self.choose_stall_s():
            on_stall, self.on_stall = self.on_stall, lambda: None
            on_stall()
            call.not_before_s = self._loop.time() + stall_s
            self._call_later(stall_s, self._try_waiting)
        if not self._try(session, call):
            call.timer = self._call_later(session.settings.statement_s, lambda: self.cancel(session, call))
            self._waiting.append((session, call))

    def cancel(self, session: Session, call: Call) -> None:
        """Cancel a statement that has not ended; a commit remains, even one that waits for the standby."""
        if (session, call) in self._waiting and not call.text.startswith(("COMMIT", "ROLLBACK")):
            self._waiting.remove((session, call))
            self._refuse(session, call, asyncpg.QueryCanceledError("canceling statement"))
        elif self._committing is not None and self._committing[1] is call:
            self._acknowledge()

    def end_session(self, session: Session) -> None:
        """Roll back the open transaction of a client that has gone."""
        if session.is_lost:
            return
        session.is_lost = True
        self.sessions.pop(session.pid, None)
        _stop(session.idle)
        for waiting in [*self._waiting]:
            if waiting[0] is session:
                _stop(waiting[1].timer)
                self._waiting.remove(waiting)
        if self._committing is not None and self._committing[0] is session:
            self._acknowledge()
        self._end_transaction(session, "ROLLBACK")
        self._go_on()

    # Crashes and starts.

    def crash(self, error: Exception, *, keeps_last: bool = True) -> None:
        """Lose all sessions. Acknowledged commits remain; a commit that waits for the standby remains if
        `keeps_last`.
        """
        self.is_up = False
        committing, self._committing = self._committing, None
        if committing is not None:
            _stop(committing[1].timer)
            committing[2]() if keeps_last else self.tables.writer.execute("ROLLBACK")
            self._writing = None
        for session in [*self.sessions.values()]:
            self.end_session(session)
            session.lose(error)

    def start(self) -> None:
        """Start again, as this server or as its successor."""
        if not self.is_up:
            self.is_up = True
            self._began += 1

    def find_standby(self) -> None:
        """Acknowledge the commit that waits for the standby, which is back."""
        self.has_standby = True
        if self._committing is not None:
            self._acknowledge()
            self._go_on()

    # Statements.

    def _try(self, session: Session, call: Call) -> bool:
        """Run a call; return False if it has to wait."""
        if self._loop.time() < call.not_before_s:
            return False
        try:
            rows = self._run(session, call)
        except Exception as error:  # also of a statement that cannot be translated: its caller says so
            self._refuse(session, call, error)
            return True
        if rows is not None:
            self._answer(session, call, rows)
        return rows is not None or call.is_committing

    def _run(self, session: Session, call: Call) -> list[Row] | None:
        """Return the rows; None if the call waits."""
        text = call.text
        if text in _ABOUT_SESSION:
            return [(getattr(session, _ABOUT_SESSION[text]),)]
        if (begin := _BEGIN.match(text)) is not None:
            session.in_transaction = True
            if begin["snapshot"]:
                session.snapshot = self.tables.open_snapshot()
            return []
        if _RESET.match(text):
            session.listening.clear()
        if _RESET.match(text) or text.startswith("ROLLBACK") or (session.is_failed and text.startswith("COMMIT")):
            self._end_transaction(session, "ROLLBACK")
            return []
        if text.startswith("COMMIT"):
            return self._commit(session, call)
        if (listen := _LISTEN.match(text)) is not None:
            session.listening.add(listen[1])
            return []
        if _UNMODELLED.match(text):
            return []
        if session.is_failed:
            raise asyncpg.InFailedSQLTransactionError("the transaction is aborted")
        return self._run_statement(session, call, translate(text))

    def _run_statement(self, session: Session, call: Call, statement: Translated) -> list[Row] | None:
        if _ADVISORY.match(call.text):
            [(key,)] = run_statement(self.tables.committed, statement, call.executions)
            return [()] if self._lock(session, key) else None
        if session.snapshot is not None:
            return run_statement(session.snapshot, statement, call.executions)
        if not statement.writes and self._writing is not session:
            rows = run_statement(self.tables.committed, statement, call.executions)
            session.notices += self._take_notices()
            return rows if session.in_transaction else self._commit(session, call, rows)
        if self._writing not in (None, session):
            return None
        if self.is_full:
            on_full, self.on_full = self.on_full, lambda: None
            on_full()
            raise asyncpg.DiskFullError("could not extend a file")
        if self._writing is None:
            self._writing = session
            self.tables.writer.execute("BEGIN IMMEDIATE")
        try:
            rows = run_statement(self.tables.writer, statement, call.executions)
        except BaseException:
            self._take_notices()
            if not session.in_transaction:
                self._end_transaction(session, "ROLLBACK")
            raise
        session.notices += self._take_notices()
        return rows if session.in_transaction else self._commit(session, call, rows)

    def _commit(self, session: Session, call: Call, rows: Iterable[Row] = ()) -> list[Row] | None:
        """Commit and return the rows; return None if the standby does not answer."""
        found = [*rows]

        def commit() -> None:
            notices, session.notices = session.notices, []
            self._end_transaction(session, "COMMIT")
            self._tell(session, notices)

        if self._writing is session and not self.has_standby:
            call.is_committing = True
            _stop(call.timer)  # of the server's, which do not end this wait; its client may
            self._committing = session, call, commit
            call.answer = _answer_instead(call.answer, found)
            return None
        commit()
        return found

    def _acknowledge(self) -> None:
        """Complete the commit that waits for the standby."""
        assert self._committing is not None, "something waits"
        session, call, commit = self._committing
        self._committing = None
        commit()
        self._answer(session, call, [])

    def _end_transaction(self, session: Session, how: str) -> None:
        if self._writing is session:
            self.tables.writer.execute(how)
            self._writing = None
        if session.snapshot is not None:
            session.snapshot.close()
            session.snapshot = None
        for key in session.advisory:
            del self._advisory[key]
        session.advisory.clear()
        session.notices.clear()
        session.in_transaction = session.is_failed = False

    def _lock(self, session: Session, key: object) -> bool:
        holder = self._advisory.setdefault(key, session)
        if holder is session:
            session.advisory.add(key)
        return holder is session

    def _refuse(self, session: Session, call: Call, error: Exception) -> None:
        session.is_failed = session.in_transaction
        self._answer(session, call, error)

    def _answer(self, session: Session, call: Call, outcome: list[Row] | Exception) -> None:
        _stop(call.timer)
        if session.in_transaction:
            session.idle = self._call_later(session.settings.idle_s, lambda: self._end_idle(session))
        call.answer(outcome)
        self._go_on()

    def _end_idle(self, session: Session) -> None:
        self.end_session(session)
        session.lose(asyncpg.IdleInTransactionSessionTimeoutError("terminating connection"))

    def _go_on(self) -> None:
        """Resume calls that have waited for a lock."""
        if self._waiting:
            self._loop.call_soon(self._try_waiting, context=Context())

    def _try_waiting(self) -> None:
        for waiting in [*self._waiting]:
            if waiting in self._waiting and self._try(*waiting) and waiting in self._waiting:
                self._waiting.remove(waiting)

    def _take_notices(self) -> list[tuple[str, str]]:
        notices, self.tables.notices = self.tables.notices, []
        return notices

    def _tell(self, sender: Session, notices: Iterable[tuple[str, str]]) -> None:
        for channel, text in dict.fromkeys(notices):
            for session in self.sessions.values():
                if channel in session.listening:
                    session.notify(sender.pid, channel, text)

    def _call_later(self, delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle | None:
        """Call `callback` after `delay_s`; return None for an infinite delay."""
        if delay_s == inf:
            return None
        return self._loop.call_later(delay_s, callback, context=Context())


def _answer_instead(answer: Callable[[list[Row] | Exception], None], rows: list[Row]) -> Any:
    def answer_rows(outcome: list[Row] | Exception) -> None:
        answer(outcome if isinstance(outcome, Exception) else rows)

    return answer_rows


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
