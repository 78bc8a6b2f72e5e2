"""Keeps one MCP server connected and its tools offered."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial

import mcp
import structlog

from services.runtime.auth.identity import get_identity, require_identity
from services.tools.mcp_client.live_calls import LiveCalls
from services.tools.mcp_client.oauth.authorizer import Authorizer
from services.tools.mcp_client.oauth.token_store import TokenStore
from services.tools.mcp_client.offered_tools import (
    make_connect_tool,
    make_resource_tools,
    make_unlisted_tool,
    map_tools,
)
from services.tools.mcp_client.questions import make_shared_handlers
from services.tools.mcp_client.sdk_errors import ServerFailed
from services.tools.mcp_client.session import McpSession, SessionHandlers, open_session
from services.tools.mcp_client.settings import Http, Settings
from services.tools.mcp_client.tool_calls import make_execute
from services.tools.mcp_client.user_sessions import UserLists, UserSessions
from services.tools.toolkit.tool import Tool, ToolContext, find_authorization

SLOW_START_S = 20.0
"""Time after which the log reports that a server has not started yet."""

RETRY_S, RETRY_S_MAX = 1.0, 60.0
"""Delay between connection attempts, also those triggered by calls; doubled each time, with jitter."""

STEADY_S = 30.0
"""Duration of a connection after which the delay is reset."""

SETTLE_S = 0.2
"""Delay after a change of the tool list, so that several changes are read together; doubled while they continue."""

LIST_S = 20.0

LIST_AGAIN_S = 10.0
"""Delay before a list that could not be read is requested again; the previous one stays valid until then."""

PAGES_MAX = 256

TOOLS_MAX = 256
"""Maximum tools of a server: models do not choose well among more, and it bounds the pages read."""

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
        """`tokens` are required if the settings have users authorize."""
        self.name = name
        self.tried = asyncio.Event()
        """Set when an attempt to connect has succeeded or failed; cleared before waiting for the next."""
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
        """Whether its version in the last session is 2026-07-28 or later."""
        self._user_sessions: UserSessions | None = None
        self._user_lists: UserLists | None = None
        """Set while it runs, if its users authorize Headrace."""
        self._problem = "it is not connected yet"
        self._wanted = asyncio.Event()
        """Set to start the next attempt now."""
        self._was_listed = False
        """Whether the last connection attempt got as far as a list of tools."""
        self._wanted_from_s = 0.0
        """Loop time from which calls may trigger the next attempt, so that they do not start the server constantly."""
        self._refusal: ServerFailed | None = None
        """The refusal of its tool list; each user who has consented then has a separate list."""

    @asynccontextmanager
    async def borrow_session(self, authorization: str) -> AsyncGenerator[McpSession]:
        """Lend a session, the user's own if the server distinguishes users. Raises ServerFailed."""
        if authorization and self._user_sessions is not None and isinstance(self.settings, Http):
            async with self._user_sessions.borrow_session(authorization) as session:
                yield session
        elif self._refusal is not None:
            raise self._refusal
        else:
            with (await self._find_session()).lend() as session:
                yield session

    async def _find_session(self) -> McpSession:
        """Return the shared session, after an attempt to open one if necessary."""
        if self._session is None or self._session.ended:
            self.tried.clear()
            asyncio.get_running_loop().call_at(self._wanted_from_s, self.wake)
            await self.tried.wait()
        if self._session is None or self._session.ended:
            raise ServerFailed(self._problem)
        return self._session

    def wake(self) -> None:
        """Try to connect now, if it is not connected."""
        self._wanted.set()

    async def find_authorization(self, context: ToolContext) -> str:
        """Return the user's Authorization header; empty without one."""
        given = find_authorization(self.name, context.credentials)
        if given or self.authorizer is None:
            return given
        return await self.authorizer.find_header(require_identity())

    def open_own_session(
        self, authorization: str, handlers: SessionHandlers
    ) -> AbstractAsyncContextManager[McpSession]:
        """Open a session for a single call, in which the server may ask questions."""
        return open_session(self.settings, self._env, authorization, handlers)

    async def list_own_tools(self, wait_s: float) -> Sequence[Tool]:
        """Return the tools listed only for the current user, as last listed if reading takes longer than `wait_s`.

        There are none if all users see the same, or if the user has not consented.
        """
        user = get_identity()
        if user is None or self._refusal is None or self._user_lists is None:
            return ()
        return await self._user_lists.find_tools(user, wait_s)

    async def find_own_tools(self, name: str) -> Sequence[Tool]:
        """Return the current user's tools, for a call of `name`. If the user sees none, that call asks for consent."""
        own = await self.list_own_tools(LIST_S)
        return own or ([make_unlisted_tool(self, name)] if self._refusal is not None else ())

    def end_sessions(self, headers: Collection[str]) -> None:
        """Stop using the sessions opened with these Authorization headers."""
        if self._user_sessions is not None:
            for header in headers:
                self._user_sessions.end_session(header)
        if self._user_lists is not None:
            self._user_lists.forget(headers)

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                self._user_sessions = UserSessions(group, self._open_shared_session)
                if self.authorizer is not None:
                    self._user_lists = UserLists(self.name, group, self.authorizer.find_header, self._read_own_tools)
                await self._keep_connected(group)
        finally:
            self._user_lists = None
            self._problem = "it is not in mcp.json any more"
            self.tried.set()
            self.live_calls.stop()
            self._offer(())

    def _open_shared_session(self, authorization: str = "") -> AbstractAsyncContextManager[McpSession]:
        return open_session(self.settings, self._env, authorization, make_shared_handlers(self.settings))

    async def _keep_connected(self, group: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        delay_s = 0.0
        while True:
            started = loop.time()
            self._was_listed = False
            left = loop.create_future()
            group.create_task(self._own_session(left))
            problem, stderr = await left
            if loop.time() - started > STEADY_S:
                delay_s = 0.0
            if problem:
                self._mark_unavailable(problem)
                if not delay_s:
                    # Its entry may be wrong if it has never been listed, which a person must see.
                    report = log.warning if self._tools or self._refusal is not None else log.error
                    report("mcp server down", server=self.name, problem=problem, stderr=stderr)
            else:
                log.info("mcp session renewed", server=self.name)
            if not self._was_listed:
                self.tried.set()
                self._wanted_from_s = loop.time() + RETRY_S
            delay_s = min(delay_s * 2 or RETRY_S, RETRY_S_MAX)
            # Not longer than until it is wanted, by a call or a user who has agreed.
            with suppress(TimeoutError):
                async with asyncio.timeout(delay_s * random.uniform(0.8, 1.2)):
                    await self._wanted.wait()
            self._wanted.clear()

    async def _own_session(self, left: asyncio.Future[tuple[str, str]]) -> None:
        """Own a session until it has ended and no caller waits for a response.

        `left` is set as soon as another must be opened: to the reason, or "" if its server has only forgotten it,
        and to the end of what a process wrote to standard error if it did not start.
        """
        problem, stderr, session = "internal error", "", None
        slow = asyncio.get_running_loop().call_later(SLOW_START_S, self._tell_slow_start)
        try:
            async with self._open_shared_session() as session:
                try:
                    await self._follow_session(session)
                finally:
                    slow.cancel()
                    if not session.is_forgotten:
                        self._mark_unavailable(ENDED)  # immediately, because closing takes a process some time
                left.set_result(("" if session.is_forgotten else ENDED, ""))
                await session.wait_until_unused()
        except ServerFailed as failure:
            problem = "" if session is not None and session.is_forgotten else str(failure)
            stderr = failure.stderr
            if self.authorizer is not None and failure.is_refusal:
                is_known = self._refusal is not None
                self._refusal, self._tools = failure, []
                if not is_known:
                    self._offer_tools()
                problem = "its users have to authorize Headrace first"
        except Exception:
            # Ours or the SDK's bug: this server must not take the others and the service with it.
            log.exception("mcp server failed", server=self.name)
        finally:
            slow.cancel()
            if not left.done():
                left.set_result((problem, stderr))

    def _tell_slow_start(self) -> None:
        if not self._was_listed:
            log.warning("mcp server is slow to start", server=self.name, after_s=SLOW_START_S)

    async def _follow_session(self, session: McpSession) -> None:
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(session.follow_changes())
            loop, settle_s = asyncio.get_running_loop(), 0.0
            while not session.ended:
                session.changed.clear()
                await self._list_again(session)
                listed_s = loop.time()
                await session.changed.wait()
                is_new = loop.time() - listed_s > LIST_AGAIN_S
                settle_s = SETTLE_S if is_new or not settle_s else min(settle_s * 2, LIST_AGAIN_S)
                with suppress(TimeoutError):
                    async with asyncio.timeout(settle_s):
                        await session.end_of_use.wait()
            listening.cancel()

    async def _list_again(self, session: McpSession) -> None:
        try:
            await self._list_tools(session)
        except ServerFailed as failure:
            if self._session is not session or session.ended or failure.is_refusal:
                raise
            log.warning("mcp server not listed", server=self.name, problem=str(failure))
            asyncio.get_running_loop().call_later(LIST_AGAIN_S, session.changed.set)

    async def _list_tools(self, session: McpSession) -> None:
        tools = await self._read_tools(session)
        self._session, self._tools, self._refusal = session, tools, None
        self._was_listed = True
        self._offer_tools()
        self.tried.set()
        log.info("mcp server listed", server=self.name, tools=len(tools))

    async def _read_own_tools(self, authorization: str) -> Sequence[Tool]:
        async with self.borrow_session(authorization) as session:
            return [dataclasses.replace(tool, is_per_user=True) for tool in await self._read_tools(session)]

    async def _read_tools(self, session: McpSession) -> list[Tool]:
        """Return the tools that the session's server lists. Raises ServerFailed."""
        session.results.refused.clear()
        try:
            async with asyncio.timeout(LIST_S):
                listed = await self._read_pages(session)
        except TimeoutError:
            raise ServerFailed(f"it did not list its tools within {LIST_S:g} s") from None
        self.is_modern = session.is_modern
        execute = partial(make_execute, self)
        tools = map_tools(self.name, listed[:TOOLS_MAX], session.results.refused, self.settings, execute)
        if self.settings.resources and session.client.server_capabilities.resources:
            taken = {tool.name.casefold() for tool in tools}
            tools += [tool for tool in make_resource_tools(self) if tool.name.casefold() not in taken]
        return tools

    async def _read_pages(self, session: McpSession) -> list[mcp.Tool]:
        """Return the listed tools, each once, up to a page that the server does not give or has given before."""
        listed: dict[str, mcp.Tool] = {}
        cursors: list[str | None] = [None]
        while len(listed) < TOOLS_MAX and len(cursors) <= PAGES_MAX:
            try:
                page = await session.ask(session.client.list_tools(cursor=cursors[-1]))
            except ServerFailed as failure:
                if session.ended or not listed or self._session is session:  # a list read earlier is more complete
                    raise
                log.warning("mcp server listed in part", server=self.name, problem=str(failure), tools=len(listed))
                break
            listed = {tool.name: tool for tool in page.tools} | listed
            # An empty cursor is one like any other since 2026-07-28; servers before that write it at the end.
            is_last = page.next_cursor is None if session.is_modern else not page.next_cursor
            if is_last or page.next_cursor in cursors:
                break
            cursors.append(page.next_cursor)
        if len(listed) > TOOLS_MAX:
            log.warning("mcp tools left out", server=self.name, kept=TOOLS_MAX, listed=len(listed))
        return [*listed.values()]

    def _mark_unavailable(self, problem: str) -> None:
        # The tools stay known, so that agents and models get the reason.
        text = f"its MCP server {self.name!r} cannot be used now: {problem}"
        self._session, self._problem = None, problem
        if self._tools and self._tools[0].unavailable != text:
            self._tools = [dataclasses.replace(tool, unavailable=text) for tool in self._tools]
            self._offer_tools()

    def _offer_tools(self) -> None:
        extra = [make_connect_tool(self)] if self._refusal is not None else []
        self._offer([*self._tools, *extra])
