"""Separates users of one server: a session for each credential, and a list of tools for each user.

No server can confuse users, and a list is read with the user's own token and shown to no one else.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field

import structlog

from services.runtime.auth.identity import Identity, current_tenant
from services.tools.mcp_client.sdk_errors import ServerFailed
from services.tools.mcp_client.session import McpSession
from services.tools.toolkit.tool import Tool

log = structlog.get_logger()

SESSIONS_MAX = 64
"""Maximum sessions of one server; the least recently used is dropped. Of those in use, a tenant may have as many as it
leaves free."""

IDLE_S = 600.0
"""How long an unused session is kept, with its credential."""

LISTS_MAX = 256
"""Maximum lists of one server; the least recently used is dropped."""

FRESH_S = 60.0
"""Age at which a list is read again on the user's next request."""

AGAIN_S = 10.0
"""Delay before a list that could not be read is requested again; the previous one stays valid until then."""


@dataclass(eq=False, slots=True)
class _UserSession:
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    outcome: McpSession | ServerFailed | None = None

    calls: int = 0
    """Number of calls that have the session or wait for it."""
    tenant: str = ""
    """Tenant of the first of these calls."""
    used_at: float = 0.0
    task: asyncio.Task[None] | None = None


class UserSessions:
    def __init__(
        self, group: asyncio.TaskGroup, opened: Callable[[str], AbstractAsyncContextManager[McpSession]]
    ) -> None:
        self._group = group
        self._open_session = opened
        self._sessions: OrderedDict[str, _UserSession] = OrderedDict()

    @asynccontextmanager
    async def borrow_session(self, authorization: str) -> AsyncGenerator[McpSession]:
        """Lend the credential's session, opening one if necessary. Raises ServerFailed."""
        entry = self._sessions.get(authorization)
        is_over = entry is None or (isinstance(entry.outcome, McpSession) and entry.outcome.ended)
        if entry is None or is_over or not entry.calls:
            self._check_room(current_tenant())
        if entry is None or is_over:
            entry = self._add_session(authorization)
        if not entry.calls:
            entry.tenant = current_tenant()
        self._sessions.move_to_end(authorization)
        entry.calls += 1
        try:
            await entry.ready.wait()
            if not isinstance(entry.outcome, McpSession):
                raise entry.outcome or ServerFailed("the session has ended")
            with entry.outcome.lend() as session:
                yield session
        finally:
            entry.calls -= 1
            entry.used_at = asyncio.get_running_loop().time()

    def end_session(self, authorization: str) -> None:
        """Stop lending the credential's session; calls that have it may finish."""
        entry = self._sessions.pop(authorization, None)
        if entry is not None and entry.task is not None and not entry.calls:
            entry.task.cancel()

    def _check_room(self, tenant: str) -> None:
        """Raise ServerFailed if the tenant has its share of the sessions in use."""
        used = [entry for entry in self._sessions.values() if entry.calls]
        if SESSIONS_MAX - len(used) <= sum(entry.tenant == tenant for entry in used):
            raise ServerFailed(f"{len(used)} users are using it already; try again later")

    def _add_session(self, authorization: str) -> _UserSession:
        if len(self._sessions) >= SESSIONS_MAX:
            idle = next(key for key, entry in self._sessions.items() if not entry.calls)
            task = self._sessions.pop(idle).task
            assert task is not None
            task.cancel()
        entry = self._sessions[authorization] = _UserSession()
        entry.task = self._group.create_task(self._own_session(authorization, entry))
        return entry

    async def _own_session(self, authorization: str, entry: _UserSession) -> None:
        try:
            async with self._open_session(authorization) as session:
                entry.outcome = session
                entry.ready.set()
                await _wait_until_idle(session, entry)
                if self._sessions.get(authorization) is entry:
                    del self._sessions[authorization]
                await session.wait_until_unused()
        except ServerFailed as failure:
            entry.outcome = failure
        except Exception:
            # Ours or the SDK's bug: one user's session must not take the server's other ones with it.
            log.exception("mcp session failed")
            entry.outcome = ServerFailed("internal error")
        finally:
            entry.ready.set()
            if self._sessions.get(authorization) is entry:
                del self._sessions[authorization]


async def _wait_until_idle(session: McpSession, entry: _UserSession) -> None:
    loop = asyncio.get_running_loop()
    entry.used_at = loop.time()
    while not session.ended and (entry.calls or loop.time() - entry.used_at < IDLE_S):
        session.changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(IDLE_S):
                await session.changed.wait()


@dataclass(eq=False, slots=True)
class _UserList:
    header: str = ""
    """The Authorization header that the tools were listed with."""
    tools: Sequence[Tool] = ()
    due_s: float = 0.0
    """Loop time from which it is read again."""
    reading: asyncio.Task[None] | None = None


class UserLists:
    def __init__(
        self,
        server: str,
        group: asyncio.TaskGroup,
        find_header: Callable[[Identity], Awaitable[str]],
        read: Callable[[str], Awaitable[Sequence[Tool]]],
    ) -> None:
        """`read` lists the tools with an Authorization header, and raises ServerFailed."""
        self._server = server
        self._group = group
        self._find_header = find_header
        self._read_tools = read
        self._lists: OrderedDict[Identity, _UserList] = OrderedDict()

    async def find_tools(self, user: Identity, wait_s: float) -> Sequence[Tool]:
        """Return the user's tools, as last listed if reading takes longer than `wait_s`; none without a token."""
        entry = self._lists.setdefault(user, _UserList())
        self._lists.move_to_end(user)
        if len(self._lists) > LISTS_MAX:
            self._lists.popitem(last=False)
        if entry.reading is None:
            # A separate task, so that a caller who leaves does not interrupt the renewal of a token.
            entry.reading = self._group.create_task(self._read(user, entry))
        await asyncio.wait([entry.reading], timeout=wait_s)
        return entry.tools

    def forget(self, headers: Collection[str]) -> None:
        """Drop the lists read with these Authorization headers."""
        for entry in self._lists.values():
            if entry.header in headers:
                entry.header, entry.tools = "", ()

    async def _read(self, user: Identity, entry: _UserList) -> None:
        loop = asyncio.get_running_loop()
        try:
            header = await self._find_header(user)
            if header != entry.header:
                entry.header, entry.tools, entry.due_s = header, (), 0.0
            if header and loop.time() >= entry.due_s:
                entry.due_s = loop.time() + AGAIN_S
                tools = await self._read_tools(header)
                if entry.header == header:  # else its user has revoked it in the meantime
                    entry.tools, entry.due_s = tools, loop.time() + FRESH_S
        except ServerFailed as failure:
            if failure.is_refusal:
                entry.tools = ()
            log.warning("mcp server not listed for a user", server=self._server, problem=str(failure))
        except Exception:
            # Ours or the SDK's bug: one user's list must not take the server's other ones with it.
            log.exception("mcp list failed", server=self._server)
        finally:
            entry.reading = None
