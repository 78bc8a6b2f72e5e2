"""Connections to the database, with waiting, retries and errors.

A restart or fail-over takes seconds, during which calls wait and are repeated, so `run` accepts only work that is safe
to repeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from weakref import WeakSet

import asyncpg
import structlog
from prometheus_client import Gauge, Histogram

from headrace.errors import Overloaded
from services.memory.storage.postgres.connection.hosts import open_connection
from services.memory.storage.postgres.connection.pooler import refuse_pooler
from services.memory.storage.postgres.connection.session import Connection, Session, begin_session, check_encoding
from services.memory.storage.work import WORK, Shares
from services.runtime.clock import monotonic_s
from services.runtime.ending import CannotServe
from services.runtime.files.disk import make_full_error
from services.runtime.telemetry.spans import current_exemplar

SAY_EVERY_S = 10.0
"""Minimum time between log records of a partial outage; a full outage gets two."""

_UP = Gauge("headrace_database_up", "1 while the database can be used.")
WAITS = Histogram(
    "headrace_database_wait_seconds",
    "How long calls wait for a connection to the database; `work`: run, list, export or maintenance.",
    ("work",),
    buckets=(0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 12),
)

log = structlog.get_logger()


class Availability:
    def __init__(self) -> None:
        self.is_up = True
        self._is_said = False
        self._said_at = float("-inf")
        _UP.set(1)

    def note_failure(self, error: BaseException) -> None:
        self.is_up = False
        _UP.set(0)
        now = monotonic_s()
        if not self._is_said and now - self._said_at >= SAY_EVERY_S:
            self._is_said, self._said_at = True, now
            log.warning("database away", kind=type(error).__name__)

    def note_success(self) -> None:
        if self.is_up:
            return
        self.is_up = True
        _UP.set(1)
        if self._is_said:
            self._is_said = False
            log.info("database back", away_s=round(monotonic_s() - self._said_at, 1))


T = TypeVar("T")

PATIENCE_S = 12.0
"""How long a call waits for an unavailable database: less than half of our callers' patience, and less than the
facade's heartbeat, which begins a response that can then no longer be refused with a status."""

RETRY_AFTER_S = 5.0
"""Suggested delay before a caller that waited in vain retries, and then waits again."""

START_PATIENCE_S = 60.0
"""How long a starting service waits, because the database may be starting too."""

RETRY_DELAY_S = 0.1
"""Delay between attempts: a restart takes about a second, and all connections retry."""

CONNECT_TIMEOUT_S = 5
CLOSE_TIMEOUT_S = 5.0

RELEASE_TIMEOUT_S = 1.0
"""Time to reset a connection before it is closed; short, so that PATIENCE_S leaves room for another one."""

CLIENT_SLACK_S = 2.0
"""How much earlier the server abandons a statement than the client."""

IDLE_S = 300.0
"""Time after which an unused connection is closed."""

NO_ADDRESS = (
    "HEADRACE_DATABASE_URL: not an address of a database; in user and password, write characters such as @ : / ? # [ ] "
    "percent-encoded (@ as %40)"
)

AWAY = (
    OSError,  # timeouts and refused connections among them
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # no server of several takes writes
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.ReadOnlySQLTransactionError,  # a standby, which a fail-over has not made the primary yet
    asyncpg.InsufficientResourcesError,  # too many connections
)
"""Errors that pass once the database is back."""


@dataclass(frozen=True, slots=True)
class Limits:
    connections_max: int
    statement_timeout_s: float
    patience_s: float = PATIENCE_S


@contextmanager
def database_errors() -> Generator[None]:
    """Raise Overloaded, or DiskFull, if the database refuses; the request can be repeated.

    The message names only the kind of error, because the error's text may quote user content.
    """
    try:
        yield
    except asyncpg.DiskFullError as error:
        raise make_full_error("the database") from error
    except (*AWAY, asyncpg.PostgresError) as error:
        kind = getattr(error, "sqlstate", None) or type(error).__name__
        message = f"the database cannot be used ({kind}); try again later"
        raise Overloaded(message, retry_after_s=RETRY_AFTER_S) from error


@contextmanager
def _keeping_cancellation() -> Generator[None]:
    """Raise CancelledError if a cancelled task's rollback failed and its error replaced the cancellation."""
    task = asyncio.current_task()
    cancels = task.cancelling() if task is not None else 0
    try:
        yield
    except Exception as error:
        if task is not None and task.cancelling() > cancels:
            raise asyncio.CancelledError from error
        raise


class Database:
    """A pool of connections, shared by all tasks of one event loop."""

    def __init__(self, pool: asyncpg.Pool, sessions: WeakSet[Session], limits: Limits, presence: Availability) -> None:
        self.presence = presence
        self._pool = pool
        self._sessions = sessions
        self._patience_s = limits.patience_s
        self._shares = Shares(limits.connections_max, limits.statement_timeout_s)
        self._releasing: set[asyncio.Task[None]] = set()

    def leave_other_servers(self, server: datetime) -> None:
        """Close the connections to other servers; their calls are repeated on this one."""
        for session in list(self._sessions):
            if session.server != server:
                session.terminate()

    async def run(self, do: Callable[[Connection], Awaitable[T]]) -> T:
        """Call `do` with a connection, and again if the database became unavailable, whether or not the first call took
        effect.

        Raises:
            Overloaded: The database is unavailable for too long, or refuses, or is too slow for this kind of work.
            QueueFull: Other work of this kind uses all of its connections.
        """
        wait = WAITS.labels(WORK.get().value), monotonic_s()
        async with self._shares.using_one() as timeout_s:
            return await self._run_repeatedly(do, timeout_s, wait)

    async def _run_repeatedly(
        self, do: Callable[[Connection], Awaitable[T]], timeout_s: float | None, wait: tuple[Histogram, float]
    ) -> T:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience_s
        with database_errors():
            while True:
                try:
                    with _keeping_cancellation():
                        done = await self._run_once(do, timeout_s, wait)
                except AWAY as error:
                    if isinstance(error, asyncpg.DataError):
                        raise
                    self.presence.note_failure(error)
                    if isinstance(error, asyncpg.DiskFullError) or loop.time() >= until:
                        raise
                    await asyncio.sleep(RETRY_DELAY_S)
                else:
                    self.presence.note_success()
                    return done

    async def _run_once(
        self, do: Callable[[Connection], Awaitable[T]], timeout_s: float | None, wait: tuple[Histogram, float]
    ) -> T:
        connection = await self._pool.acquire(timeout=self._patience_s)
        waits, began_s = wait
        waits.observe(monotonic_s() - began_s, current_exemplar())
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                return await do(connection)
        except TimeoutError as error:
            if limit.expired():
                message = f"the answer takes more than {timeout_s:g} s; ask for less, or try again later"
                raise Overloaded(message, retry_after_s=RETRY_AFTER_S) from error
            await self._pool.expire_connections()  # they all lead to a server that says nothing
            raise
        finally:
            # A separate task, so that the error of a release is retrieved even if the caller leaves.
            releasing = asyncio.create_task(self._release(connection))
            self._releasing.add(releasing)
            releasing.add_done_callback(self._releasing.discard)
            await asyncio.shield(releasing)

    async def _release(self, connection: Connection) -> None:
        """Return a connection to the pool; one that cannot be reset is closed, without effect on completed work."""
        with suppress(*AWAY, asyncpg.PostgresError):
            await self._pool.release(connection, timeout=RELEASE_TIMEOUT_S)


@asynccontextmanager
async def open_database(url: str, limits: Limits) -> AsyncGenerator[Database]:
    """Connect to the database at `url`.

    Raises:
        OSError: It cannot be reached.
    """
    sessions = WeakSet[Session]()

    async def begin(session: Session) -> None:
        check_encoding(session)
        session.server = await begin_session(session)
        sessions.add(session)

    options: dict[str, Any] = {
        "timeout": CONNECT_TIMEOUT_S,
        "command_timeout": limits.statement_timeout_s + CLIENT_SLACK_S,
        "server_settings": make_server_settings(limits.statement_timeout_s),
    }
    pool = asyncpg.create_pool(
        url,
        connect=open_connection,
        connection_class=Session,
        init=begin,
        min_size=0,  # a pool with a minimum reconnects by itself while the database is down, with a traceback each time
        max_size=limits.connections_max,
        max_inactive_connection_lifetime=IDLE_S,
        **options,
    )
    presence = Availability()
    await _wait_until_open(pool, presence, lambda: refuse_pooler(url, **options))
    try:
        yield Database(pool, sessions, limits, presence)
    finally:
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await pool.close()
        except (TimeoutError, *AWAY):
            pool.terminate()


def make_server_settings(statement_timeout_s: float) -> dict[str, str]:
    timeout_ms = str(round(statement_timeout_s * 1000))
    return {
        "application_name": "headrace-memory",
        "statement_timeout": timeout_ms,
        "idle_in_transaction_session_timeout": timeout_ms,
    }


async def _wait_until_open(pool: asyncpg.Pool, presence: Availability, check: Callable[[], Awaitable[None]]) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + START_PATIENCE_S
    while True:
        try:
            with _keeping_cancellation():
                await check()
                await pool
                async with pool.acquire():
                    presence.note_success()
                    return
        except CannotServe:
            raise
        except asyncpg.ClientConfigurationError as error:
            raise CannotServe(f"HEADRACE_DATABASE_URL: {error}") from error
        except ValueError:  # its text may quote the password
            raise CannotServe(NO_ADDRESS) from None
        except (*AWAY, asyncpg.QueryCanceledError) as error:  # which one that has just been started may be too slow for
            if loop.time() >= until:
                raise OSError(f"the database cannot be reached: {type(error).__name__}") from error
            presence.note_failure(error)
            await asyncio.sleep(RETRY_DELAY_S * 10)
        except asyncpg.PostgresError as error:  # a password, a database that is not there
            raise CannotServe(f"the database refuses: {error}") from error
