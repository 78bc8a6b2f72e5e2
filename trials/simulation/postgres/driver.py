"""asyncpg for a modelled server: its own connections, transactions and pools, over a modelled protocol."""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol

import asyncpg

from trials.simulation.postgres.server import Server
from trials.simulation.postgres.session import Call, Session, SessionSettings
from trials.simulation.postgres.tables import Row

VERSION = "15.0"

GONE = "connection was closed in the middle of operation"

_numbers = itertools.count(1)


class Way(Protocol):
    """The path between a process and the server."""

    def send(self, deliver: Callable[[], None], context: Context, *, is_answer: bool) -> None:
        """Call `deliver` in the context later, after all earlier deliveries in this direction, or never."""
        ...

    def has_path(self) -> bool: ...


class DirectWay:
    """Delivers at the loop's next turn."""

    def send(self, deliver: Callable[[], None], context: Context, *, is_answer: bool) -> None:
        asyncio.get_running_loop().call_soon(deliver, context=context)

    def has_path(self) -> bool:
        return True


@dataclass(slots=True)
class Statement:
    """A prepared statement, which accepts any values."""

    query: str
    record_class: Any
    ignore_custom_codec: bool
    name: str = ""
    refs: int = 0
    closed: bool = False

    def _init_types(self) -> set[int]:
        return set()

    def _init_codecs(self) -> None:
        """Do nothing: values are not converted."""

    def mark_unprepared(self) -> None:
        """Do nothing: nothing was prepared."""

    def mark_closed(self) -> None:
        """Do nothing: no state is kept."""


class ModelProtocol:
    """The client's end of a connection, which replaces asyncpg's protocol."""

    def __init__(self, server: Server, way: Way, timeout_s: float | None, settings: SessionSettings) -> None:
        self._server, self._way, self._timeout_s = server, way, timeout_s
        self._loop, self.context = asyncio.get_running_loop(), copy_context()
        self._pending: asyncio.Future[list[Row]] | None = None
        self._is_open = True
        self._is_in_transaction = False
        """State after the last answer."""
        self._is_answered = asyncio.Event()
        """Whether no call is in progress, including calls that their callers have given up."""
        self._is_answered.set()
        self.connection: Any = None
        self.queries_count = 0
        self.session: Session = server.open_session(settings, self._on_notice, self._on_loss)

    # Messages of the server.

    def _answer(self, future: asyncio.Future[list[Row]]) -> Callable[[list[Row] | Exception], None]:
        def deliver(outcome: list[Row] | Exception, is_in_transaction: bool) -> None:
            self._is_in_transaction = is_in_transaction
            self._is_answered.set()
            if future.done():
                return
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        def answer(outcome: list[Row] | Exception) -> None:
            is_in_transaction = self.session.in_transaction
            self._way.send(lambda: deliver(outcome, is_in_transaction), self.context, is_answer=True)

        return answer

    def _on_notice(self, pid: int, channel: str, text: str) -> None:
        def deliver() -> None:
            if self._is_open and self.connection is not None:
                self.connection._process_notification(pid, channel, text)

        self._way.send(deliver, self.context, is_answer=True)

    def _on_loss(self, error: Exception) -> None:
        self._way.send(lambda: self.break_off(error), self.context, is_answer=True)

    def break_off(self, error: Exception) -> None:
        """Lose the connection; a waiting call fails with `error`."""
        if not self._is_open:
            return
        self._is_open = False
        self._is_answered.set()
        if self._pending is not None and not self._pending.done():
            self._pending.set_exception(error)
        if self.connection is not None:
            self.connection._cleanup()  # as asyncpg does when it notices

    # Methods that asyncpg's connection calls.

    async def _call(self, text: str, executions: Sequence[Sequence[Any]]) -> list[Row]:
        await self._is_answered.wait()  # asyncpg, too, waits for the end of a cancelled call
        if not self._is_open:
            raise asyncpg.ConnectionDoesNotExistError(GONE)
        self.queries_count += 1
        self._pending = future = self._loop.create_future()
        self._is_answered.clear()
        call = Call(text, executions, self._answer(future))
        self._send(lambda: self._server.receive(self.session, call))
        timer = None if self._timeout_s is None else self._loop.call_later(self._timeout_s, _expire, future)
        try:
            return await future
        except (TimeoutError, asyncio.CancelledError):
            if self._way.has_path():
                self._send(lambda: self._server.cancel(self.session, call))
            else:
                self.abort()
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _send(self, deliver: Callable[[], None]) -> None:
        self._way.send(deliver, Context(), is_answer=False)

    async def prepare(self, name: str, query: str, timeout: Any, *, record_class: Any, **options: Any) -> Statement:
        return Statement(query, record_class, **options)

    async def query(self, query: str, timeout: Any) -> str:
        await self._call(query, ())
        return ""

    async def bind_execute(self, *, state: Statement, args: Sequence[Any], return_extra: bool, **_: Any) -> Any:
        rows = await self._call(state.query, [args])
        return (rows, b"", True) if return_extra else rows

    async def bind_execute_many(self, *, state: Statement, args: Any, **_: Any) -> None:
        await self._call(state.query, [*args])

    async def close_statement(self, *_: object) -> None:
        pass

    async def close(self, timeout: float | None) -> None:
        self.abort()

    def abort(self) -> None:
        if self._is_open:
            self._is_open = False
            self._is_answered.set()
            self._send(lambda: self._server.end_session(self.session))

    def is_connected(self) -> bool:
        return self._is_open

    def is_in_transaction(self) -> bool:
        return self._is_in_transaction

    def get_server_pid(self) -> int:
        return self.session.pid

    def get_settings(self) -> Any:
        return SimpleNamespace(server_version=VERSION, server_encoding="UTF8")

    def get_record_class(self) -> Any:
        return asyncpg.Record

    def _get_timeout(self, timeout: float | None) -> None:
        """Return None: `_call` has its own timeout, by the loop's clock."""

    def _is_cancelling(self) -> bool:
        return not self._is_answered.is_set()

    async def _wait_for_cancellation(self, budget_s: float | None) -> float | None:
        async with asyncio.timeout(budget_s):
            await self._is_answered.wait()
        return budget_s


def _expire(future: asyncio.Future[Any]) -> None:
    """Report a timeout as asyncpg does, also to a caller that was cancelled before.

    In that case, asyncio.timeout raises CancelledError in Python 3.11.2 and TimeoutError in 3.11.7.
    """
    if not future.done():
        future.set_exception(TimeoutError())


def connect_to(server: Server, way: Way, options: dict[str, Any]) -> Any:
    """Return a connection with asyncpg.connect's options, to a server that is up."""
    loop = asyncio.get_running_loop()
    command_timeout_s = options.get("command_timeout")
    settings = SessionSettings.read(options.get("server_settings", {}))
    protocol = ModelProtocol(server, way, command_timeout_s, settings)
    config: Any = SimpleNamespace(
        statement_cache_size=options.get("statement_cache_size", 100),
        max_cached_statement_lifetime=0,
        max_cacheable_statement_size=0,
        command_timeout=command_timeout_s,
    )
    kind = _make_class(options.get("connection_class") or asyncpg.Connection)
    connection = kind(protocol, None, loop, ("database", 5432), config, SimpleNamespace())
    protocol.connection = connection
    return connection


_classes: dict[type, Any] = {}


def _make_class(base: type[asyncpg.Connection]) -> Any:
    """Return a subclass for simulations: sets of its objects do not depend on addresses, and it ends without a
    warning.
    """
    if base not in _classes:

        class Modelled(base):
            def __init__(self, *given: Any) -> None:
                self.number = next(_numbers)
                super().__init__(*given)

            def __hash__(self) -> int:
                return self.number

            def __del__(self) -> None:
                pass

        _classes[base] = Modelled
    return _classes[base]
