"""Keeps one MCP server connected and its tools offered."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import mcp
import structlog

from services.runtime.auth.identity import require_identity
from services.tools.mcp_client.asking.live_calls import LiveCalls
from services.tools.mcp_client.asking.shared_handlers import make_shared_handlers
from services.tools.mcp_client.connect_tool import make_connect_tool
from services.tools.mcp_client.oauth.authorizer import Authorizer
from services.tools.mcp_client.oauth.token_store import TokenStore
from services.tools.mcp_client.resource_tools import make_resource_tools
from services.tools.mcp_client.sdk_errors import ServerFailed
from services.tools.mcp_client.session import McpSession, SessionHandlers, open_session
from services.tools.mcp_client.settings import Http, Settings
from services.tools.mcp_client.tool_calls import make_execute
from services.tools.mcp_client.tool_mapping import map_tools
from services.tools.mcp_client.user_sessions import UserSessions
from services.tools.toolkit.context import ToolContext
from services.tools.toolkit.credentials import find_authorization
from services.tools.toolkit.tool import Tool

RETRY_S, RETRY_S_MAX = 1.0, 60.0
"""Delay before the next attempt; doubled each time, with jitter."""

STEADY_S = 30.0
"""Length of a connection after which the delay begins anew."""

SETTLE_S = 0.2
"""Wait after a change of the tool list, so that several are read at once."""

LIST_S = 20.0

TOOLS_MAX = 256
"""Tools of a server: no model chooses well among more, and it bounds the pages read."""

ENDED = "the connection has ended"

log = structlog.get_logger()


class McpServer:
    def __init__(
        self,
        name: str,
        settings: Settings,
        env: Mapping[str, str],
        offer: Callable[[Sequence[Tool]], None],
        tokens: TokenStore | None = None,
    ) -> None:
        """`tokens` are there where the settings have users authorize."""
        self.name = name
        self.tried = asyncio.Event()
        self.authorizer: Authorizer | None = None
        if isinstance(settings, Http) and settings.oauth is not None and tokens is not None:
            self.authorizer = Authorizer(name, settings, tokens)
        self.settings = settings
        self.live_calls = LiveCalls()
        self._env = env
        self._offer = offer
        self._tools: list[Tool] = []
        self._session: McpSession | None = None
        self.is_modern = True
        """Whether its version, of the last session that there was, is 2026-07-28 or later."""
        self._user_sessions: UserSessions | None = None
        self._listed_as = ""
        """The Authorization header of the shared session: a user's, where those alone who have agreed see the tools."""
        self._is_taken_back = False
        """Whether that user has taken the authorization back."""
        self._problem = "it is not connected yet"
        self._refusal: ServerFailed | None = None
        """What it said when it refused the list of its tools; it is then listed as a user who has agreed."""

    @asynccontextmanager
    async def borrow_session(self, authorization: str) -> AsyncGenerator[McpSession]:
        """Lends a session, the user's own where the server can tell users apart; raises ServerFailed."""
        if authorization and self._user_sessions is not None and isinstance(self.settings, Http):
            async with self._user_sessions.borrow_session(authorization) as session:
                yield session
        elif self._refusal is not None:  # the session is another user's
            raise self._refusal
        elif self._session is not None and not self._session.ended:
            yield self._session
        else:
            raise ServerFailed(self._problem)

    async def find_authorization(self, context: ToolContext) -> str:
        """Return the user's Authorization header; empty: there is none."""
        given = find_authorization(self.name, context.credentials)
        if given or self.authorizer is None:
            return given
        return await self.authorizer.find_header(require_identity())

    def open_own_session(
        self, authorization: str, handlers: SessionHandlers
    ) -> AbstractAsyncContextManager[McpSession]:
        """Opens a session for one call alone, in which the server may ask."""
        return open_session(self.settings, self._env, authorization, handlers)

    def end_sessions(self, headers: Collection[str]) -> None:
        """Use what was opened with these Authorization headers no more."""
        if self._user_sessions is not None:
            for header in headers:
                self._user_sessions.end_session(header)
        if self._listed_as in headers and self._session is not None:
            self._is_taken_back = True
            self._session.list_changed.set()

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                self._user_sessions = UserSessions(group, self._open_shared_session)
                await self._keep_connected()
        finally:
            self.live_calls.stop()
            self._offer(())

    def _open_shared_session(self, authorization: str = "") -> AbstractAsyncContextManager[McpSession]:
        return open_session(self.settings, self._env, authorization, make_shared_handlers(self.settings))

    async def _keep_connected(self) -> None:
        loop = asyncio.get_running_loop()
        delay_s = 0.0
        while True:
            started = loop.time()
            problem = await self._connect()
            # A task group of the SDK that breaks in the same moment swallows our own cancellation (anyio 4.16).
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise asyncio.CancelledError
            if loop.time() - started > STEADY_S:
                delay_s = 0.0
            self._mark_unavailable(problem)
            self.tried.set()
            if not delay_s:
                log.warning("mcp server down", server=self.name, problem=problem)
            delay_s = min(delay_s * 2 or RETRY_S, RETRY_S_MAX)
            await self._pause(delay_s * random.uniform(0.8, 1.2))

    async def _pause(self, delay_s: float) -> None:
        """Wait, not longer than until a user has agreed."""
        if self.authorizer is None:
            await asyncio.sleep(delay_s)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self.authorizer.stored.wait()
        self.authorizer.stored.clear()

    async def _connect(self) -> str:
        header = ""
        try:
            if self.authorizer is not None and self._refusal is not None:
                header = await self.authorizer.find_newest_header()
            self._listed_as, self._is_taken_back = header, False
            async with self._open_shared_session(header) as session:
                try:
                    await self._follow_session(session)
                finally:
                    self._mark_unavailable(ENDED)  # at once: closing takes a process some time
        except ServerFailed as failure:
            if self.authorizer is not None and failure.is_refusal and not header:
                self._refusal = failure
                self._offer_tools()
                return "its users have to authorize Headrace first"
            if self.authorizer is not None and failure.is_refusal:
                await self.authorizer.forget(header)
            return str(failure)
        except Exception:
            # Ours or the SDK's bug: this server must not take the others and the service with it.
            log.exception("mcp server failed", server=self.name)
            return "internal error"
        return ENDED

    async def _follow_session(self, session: McpSession) -> None:
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(session.follow_changes())
            while not session.ended and not self._is_taken_back:
                session.list_changed.clear()
                await self._list_tools(session)
                await session.list_changed.wait()
                if not session.ended and not self._is_taken_back:
                    await asyncio.sleep(SETTLE_S)
            listening.cancel()

    async def _list_tools(self, session: McpSession) -> None:
        listed: list[mcp.Tool] = []
        cursor: str | None = None
        async with asyncio.timeout(LIST_S):
            while len(listed) < TOOLS_MAX:
                page = await session.client.list_tools(cursor=cursor)
                listed += page.tools
                cursor = page.next_cursor
                if not cursor or not page.tools:
                    break
        self._session, self.is_modern = session, session.is_modern
        self._tools = map_tools(
            self.name, listed[:TOOLS_MAX], self.settings, lambda tool, effect: make_execute(self, tool, effect)
        )
        if self.settings.resources and session.client.server_capabilities.resources:
            taken = {tool.name.casefold() for tool in self._tools}
            self._tools += [tool for tool in make_resource_tools(self) if tool.name.casefold() not in taken]
        self._offer_tools()
        self.tried.set()
        log.info("mcp server listed", server=self.name, listed=len(listed), offered=len(self._tools))

    def _mark_unavailable(self, problem: str) -> None:
        # The tools stay known, so that agents and models are told why.
        text = f"its MCP server {self.name!r} cannot be used now: {problem}"
        self._session, self._problem = None, problem
        if self._tools and self._tools[0].unavailable != text:
            self._tools = [dataclasses.replace(tool, unavailable=text) for tool in self._tools]
            self._offer_tools()

    def _offer_tools(self) -> None:
        beside = [make_connect_tool(self)] if self._refusal is not None else []
        self._offer([*self._tools, *beside])
