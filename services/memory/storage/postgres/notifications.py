"""Notifications between services that share one database: changed chats, counted requests, and gates.

Correctness does not depend on those of chats and requests. They are sent in batches over their own connection, because
PostgreSQL commits notifying transactions one by one; it also notices first when a server is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import asyncpg
import structlog

from headrace.errors import HeadraceError
from services.memory.storage.postgres.connection.hosts import open_connection
from services.memory.storage.postgres.connection.pool import AWAY, CONNECT_TIMEOUT_S, make_server_settings
from services.memory.storage.postgres.connection.session import read_start_time
from services.memory.storage.postgres.gates import CHANNEL as GATE_CHANNEL

if TYPE_CHECKING:
    from services.memory.log.chat_watch import ChatWatch
    from services.memory.storage.gates.watch import GateWatch
    from services.memory.storage.postgres.connection.session import Connection

CHANNEL = "headrace_memory"

GATHER_S = 0.005
"""How long notifications are collected before they are sent together."""

WAITING_MAX = 10_000
"""Maximum pending notifications of either kind; more are dropped, each at the cost of a later read."""

RECONNECT_S = 1.0

HEARTBEAT_S = 1.0
ANSWER_TIMEOUT_S = 3.0
"""Silence after which the other addresses are tried for a server, long before calls give up."""

NEWS_CHARS_MAX = 1_000
"""Limit below the 8,000 bytes of a notification."""

_TELL = "SELECT pg_notify($1, told) FROM unnest($2::text[]) AS told"

_CHAT, _NEWS = "chat ", "news "
_FOR_READERS = " run"
"""Suffix of a chat's id if the chat's readers must be notified."""

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
        self._heard: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._is_heard = asyncio.Event()

    def notify_change(self, chat_id: str, *, is_news: bool = False) -> None:
        """Notify other services that a chat has changed; with `is_news` the chat's readers are notified, here and
        there."""
        if is_news:
            self._chat_watch.report(chat_id)
        self._put_news(self._told, _CHAT + chat_id + (_FOR_READERS if is_news else ""), self._wake)

    def listen(self, receive: Callable[[str], None]) -> None:
        self._receive = receive

    def share(self, news: str) -> None:
        """Send a message to the other services; overlong ones are dropped."""
        if len(news) <= NEWS_CHARS_MAX:
            self._put_news(self._told, _NEWS + news, self._wake)

    async def run_connection(self, follow: Callable[[str], Awaitable[None]]) -> None:
        """Send and receive until cancelled; `follow` is called with each chat that another service changed."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_chats(follow))
            group.create_task(self._stay_connected())

    async def _follow_chats(self, follow: Callable[[str], Awaitable[None]]) -> None:
        # A separate task, so that the connection still notices a lost server.
        while True:
            await self._is_heard.wait()
            self._is_heard.clear()
            heard, self._heard = self._heard, {}
            for chat_id in heard:
                with suppress(HeadraceError):  # a request for the chat gets the error
                    await follow(chat_id)

    async def _stay_connected(self) -> None:
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
                    connection.terminate()
            except (*AWAY, asyncpg.PostgresError) as error:
                if not is_said:
                    log.warning("no news of other services", kind=type(error).__name__)
                is_said = True
            await asyncio.sleep(RECONNECT_S)

    async def _serve_connection(self, connection: Connection) -> None:
        self._found(await read_start_time(connection))
        # Read now: the pid is unknown once the connection is lost, perhaps with a notification still to be delivered.
        await connection.add_listener(CHANNEL, partial(self._on_notification, connection.get_server_pid()))
        await connection.add_listener(GATE_CHANNEL, self._on_gate)
        self._gate_watch.report_loss()  # about earlier changes
        connection.add_termination_listener(self._on_termination)
        while not connection.is_closed():
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._wake.wait()
            await connection.fetchval("SELECT 1")
            await asyncio.sleep(GATHER_S)
            self._wake.clear()
            told, self._told = self._told, {}
            if told:
                await connection.execute(_TELL, CHANNEL, list(told))

    def _on_notification(self, own_pid: int, _: Connection, pid: int, channel: str, told: str) -> None:
        if pid == own_pid:
            return  # our own notifications come back, too
        if told.startswith(_CHAT):
            chat_id = told.removeprefix(_CHAT).removesuffix(_FOR_READERS)
            if told.endswith(_FOR_READERS):
                self._chat_watch.report(chat_id)
            self._put_news(self._heard, chat_id, self._is_heard)
        elif self._receive:
            self._receive(told.removeprefix(_NEWS))

    def _on_gate(self, connection: Connection, pid: int, channel: str, told: str) -> None:
        run_id, _, gate_id = told.partition(" ")
        self._gate_watch.report([(run_id, gate_id)])

    def _on_termination(self, connection: Connection) -> None:
        self._wake.set()

    def _put_news(self, waiting: dict[str, None], news: str, wake: asyncio.Event) -> None:
        if len(waiting) < WAITING_MAX:
            waiting[news] = None
        wake.set()
