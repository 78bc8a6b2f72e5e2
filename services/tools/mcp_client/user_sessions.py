"""Sessions of users: one for each credential, so that a server never takes one user's call for another's."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field

import structlog

from services.tools.mcp_client.sdk_errors import ServerFailed
from services.tools.mcp_client.session import Session

SESSIONS_MAX = 32
"""For each server; the one that was used least recently makes room."""

IDLE_S = 600.0
"""An unused session, and the credential in it, is kept no longer."""

log = structlog.get_logger()


@dataclass(eq=False, slots=True)
class _Kept:
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    outcome: Session | ServerFailed | None = None
    """None until settled."""

    calls: int = 0
    used_at: float = 0.0
    task: asyncio.Task[None] | None = None


class UserSessions:
    """The sessions of one server, owned by `group`."""

    def __init__(self, group: asyncio.TaskGroup, opened: Callable[[str], AbstractAsyncContextManager[Session]]) -> None:
        self._group = group
        self._opened = opened
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    @asynccontextmanager
    async def borrow(self, authorization: str) -> AsyncGenerator[Session]:
        """The session of this credential, opened when there is none. Raises ServerFailed."""
        kept = self._kept.get(authorization)
        if kept is None or (isinstance(kept.outcome, Session) and kept.outcome.ended):
            kept = self._open(authorization)
        self._kept.move_to_end(authorization)
        kept.calls += 1
        try:
            await kept.settled.wait()
            if not isinstance(kept.outcome, Session):
                raise kept.outcome or ServerFailed("the session has ended")
            yield kept.outcome
        finally:
            kept.calls -= 1
            kept.used_at = asyncio.get_running_loop().time()

    def _open(self, authorization: str) -> _Kept:
        if len(self._kept) >= SESSIONS_MAX:
            idle = next((key for key, kept in self._kept.items() if not kept.calls), None)
            if idle is None:
                raise ServerFailed(f"{SESSIONS_MAX} users are using it already; try again later")
            task = self._kept.pop(idle).task
            assert task is not None
            task.cancel()
        kept = self._kept[authorization] = _Kept()
        kept.task = self._group.create_task(self._own(authorization, kept))
        return kept

    async def _own(self, authorization: str, kept: _Kept) -> None:
        try:
            async with self._opened(authorization) as session:
                kept.outcome = session
                kept.settled.set()
                await _until_unused(session, kept)
        except ServerFailed as failure:
            kept.outcome = failure
        except Exception:
            # Ours or the SDK's bug: one user's session must not take the server's other ones with it.
            log.exception("mcp session failed")
            kept.outcome = ServerFailed("internal error")
        finally:
            kept.settled.set()
            if self._kept.get(authorization) is kept:
                del self._kept[authorization]


async def _until_unused(session: Session, kept: _Kept) -> None:
    loop = asyncio.get_running_loop()
    kept.used_at = loop.time()
    while not session.ended and (kept.calls or loop.time() - kept.used_at < IDLE_S):
        session.news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(IDLE_S):
                await session.news.wait()
