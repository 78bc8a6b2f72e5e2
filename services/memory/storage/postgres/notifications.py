"""Notifications between services that share one database, news of chats, counted requests and gates, and what their
polls look for.

Correctness does not depend on those of chats and requests. They are sent in batches over their own connection, because
PostgreSQL commits notifying transactions one by one; it also notices first when a server is gone. The statement that
finds out reads, at once, what all polls of the services look for, so that they cost nothing while nothing changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import asyncpg
import structlog

from services.memory.storage.postgres.connection.hosts import open_connection
from services.memory.storage.postgres.connection.pool import AWAY, CONNECT_TIMEOUT_S, make_server_settings
from services.memory.storage.postgres.connection.session import begin_session
from services.memory.storage.postgres.gates import CHANNEL as GATE_CHANNEL
from services.memory.storage.records.agents import AGENTS
from services.memory.storage.records.erasures import ERASURES
from services.memory.storage.sql import NEVER, StoreState
from services.runtime.clock import monotonic_s

if TYPE_CHECKING:
    from services.memory.log.chat_watch import ChatWatch
    from services.memory.storage.gates.watch import GateWatch
    from services.memory.storage.postgres.connection.session import Connection

CHANNEL = "headrace_memory"

GATHER_S = 0.005
"""How long notifications are collected before they are sent together."""

WAITING_MAX = 10_000
"""Maximum pending notifications; more are dropped, each at the cost of a later read."""

RECONNECT_S = 1.0

HEARTBEAT_S = 1.5
"""Interval at which the store's state is read."""

STATE_S = 2 * HEARTBEAT_S
"""How long a state is used."""

ANSWER_TIMEOUT_S = 3.0
"""Silence after which the other addresses are tried for a server, long before calls give up."""

NEWS_CHARS_MAX = 1_000
"""Limit below the 8,000 bytes of a notification."""

_TELL = "SELECT pg_notify($1, told) FROM unnest($2::text[]) AS told"

_COUNTERS = (AGENTS.counter,)
"""Counters of the records that are polled with `may_lag`."""

_STATE = f"""
SELECT {", ".join(f"(SELECT last FROM {counter})" for counter in _COUNTERS)},
    (SELECT coalesce(sum(version % 2147483647), 0)::bigint FROM data_records WHERE kind = '{ERASURES.name}'),
    (SELECT coalesce(min(starts_at), 0) FROM schedules WHERE starts_at > 0),
    (SELECT coalesce(min(expires_at), {NEVER}) FROM runs WHERE NOT is_ended AND due_at = 0),
    (SELECT coalesce(min(due_at), {NEVER}) FROM runs WHERE NOT is_ended AND due_at > 0)
"""
"""Versions are random, so that their sum changes with each of them."""

_CHAT, _NEWS = "chat ", "news "

log = structlog.get_logger()


class Notifications:
    """One connection that sends and receives; `run_connection` must run as a task."""

    def __init__(
        self, url: str, found: Callable[[datetime], None], gate_watch: GateWatch, chat_watch: ChatWatch
    ) -> None:
        """`found` is called with the server of each new connection; `gate_watch` receives gates, which are notified by
        the statements that change them."""
        self._gate_watch = gate_watch
        self._chat_watch = chat_watch
        self._receive: Callable[[str], None] | None = None
        self._url = url
        self._found = found
        self._told: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._state: StoreState | None = None

    def get_state(self) -> StoreState | None:
        """Return the state of at most STATE_S ago."""
        state = self._state
        return state if state is not None and monotonic_s() - state.read_s <= STATE_S else None

    def notify_readers(self, chat_id: str) -> None:
        """Notify a chat's readers, here and at other services."""
        self._chat_watch.report(chat_id)
        self._put_news(_CHAT + chat_id)

    def listen(self, receive: Callable[[str], None]) -> None:
        self._receive = receive

    def share(self, news: str) -> None:
        """Send a message to the other services; overlong ones are dropped."""
        if len(news) <= NEWS_CHARS_MAX:
            self._put_news(_NEWS + news)

    async def run_connection(self) -> None:
        """Send and receive until cancelled."""
        is_said = False
        while True:
            try:
                connection: Connection = await open_connection(
                    self._url,
                    timeout=CONNECT_TIMEOUT_S,
                    command_timeout=ANSWER_TIMEOUT_S,
                    # A notification is on no disk: nothing is lost with one that a crash forgets.
                    server_settings=make_server_settings(ANSWER_TIMEOUT_S) | {"synchronous_commit": "off"},
                )
                is_said = False
                try:
                    await self._serve_connection(connection)
                finally:
                    self._state = None
                    connection.terminate()
            except (*AWAY, asyncpg.PostgresError) as error:
                if not is_said:
                    log.warning("no news of other services", kind=type(error).__name__)
                is_said = True
            await asyncio.sleep(RECONNECT_S)

    async def _serve_connection(self, connection: Connection) -> None:
        self._found(await begin_session(connection))
        # Read now: the pid is unknown once the connection is lost, perhaps with a notification still to be delivered.
        await connection.add_listener(CHANNEL, partial(self._on_notification, connection.get_server_pid()))
        await connection.add_listener(GATE_CHANNEL, self._on_gate)
        self._gate_watch.report_loss()  # about earlier changes
        connection.add_termination_listener(self._on_termination)
        look_at = 0.0
        while not connection.is_closed():
            if asyncio.get_running_loop().time() >= look_at:
                look_at = asyncio.get_running_loop().time() + HEARTBEAT_S
                self._state = await _read_state(connection)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(look_at):
                    await self._wake.wait()
                    await asyncio.sleep(GATHER_S)
            self._wake.clear()
            if self._told:
                payloads, self._told = self._told, {}
                try:
                    await connection.execute(_TELL, CHANNEL, list(payloads))
                except BaseException:
                    self._told = payloads  # newer ones are lost
                    raise

    def _on_notification(self, own_pid: int, _: Connection, pid: int, channel: str, payload: str) -> None:
        if pid == own_pid:
            return  # our own notifications come back, too
        if payload.startswith(_CHAT):
            self._chat_watch.report(payload.removeprefix(_CHAT))
        elif self._receive:
            self._receive(payload.removeprefix(_NEWS))

    def _on_gate(self, connection: Connection, pid: int, channel: str, payload: str) -> None:
        run_id, _, gate_id = payload.partition(" ")
        self._gate_watch.report([(run_id, gate_id)])

    def _on_termination(self, connection: Connection) -> None:
        self._wake.set()

    def _put_news(self, news: str) -> None:
        if len(self._told) < WAITING_MAX:
            self._told[news] = None
        self._wake.set()


async def _read_state(connection: Connection) -> StoreState:
    read_s = monotonic_s()
    *revisions, erasures, schedule_at, lost_at, due_at = await connection.fetchrow(_STATE)
    return StoreState(
        revisions=dict(zip(_COUNTERS, revisions, strict=True)),
        erasures=erasures,
        next_schedule_at=schedule_at,
        next_run_at=min(lost_at, due_at),
        read_s=read_s,
    )
