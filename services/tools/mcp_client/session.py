"""One session with a server, owned by a task: the SDK requires that the task that opened the client closes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from mcp import Client, Implementation, MCPError
from mcp.client.client import ConnectMode
from mcp.client.session import ElicitationFnT, IncomingMessage, ListRootsFnT, SamplingFnT
from mcp.client.subscriptions import SubscriptionLost
from mcp_types import ToolListChangedNotification
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from services.runtime.telemetry.masking import mask_values
from services.tools.mcp_client.http import SentRequest, follow_request
from services.tools.mcp_client.opening import open_transport
from services.tools.mcp_client.sdk_errors import (
    CredentialRefused,
    RequestNotTaken,
    ServerFailed,
    make_failure,
    server_errors,
)
from services.tools.mcp_client.settings import Settings, Stdio
from services.tools.mcp_client.tool_results import ResultRepair, repair_introduction

STDERR_CHARS_MAX = 500

STDERR_BYTES_MAX = 8 * STDERR_CHARS_MAX
"""More than the log gets, so that secrets are masked before the text is cut."""

CHECK_S = 5.0
"""Wait for a sign of life."""

LISTEN_S, LISTEN_S_MAX = 0.5, 60.0
"""Delay before subscribing to a server again; doubled if it refuses."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SessionHandlers:
    """Handlers of a server's requests; for None, the capability is not declared."""

    sampling: SamplingFnT | None = None
    elicitation: ElicitationFnT | None = None
    roots: ListRootsFnT | None = None


class McpSession:
    client: Client

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        """Set when the list of tools may have changed, the session has ended, or it is unused."""
        self.end_of_use = asyncio.Event()
        """Set when it accepts no more requests."""
        self.is_forgotten = False
        """Whether it ended because the server no longer knows it; the server itself is up."""
        self.closed = False
        """Whether the server's side has ended, so that no pending request gets a response."""
        self.version = ""
        """The protocol version; empty while it is being negotiated."""
        self.users = 0
        """Number of callers that have borrowed it."""
        self.results = ResultRepair()
        self._stderr = b""

    @property
    def ended(self) -> bool:
        return self.end_of_use.is_set()

    @property
    def is_modern(self) -> bool:
        """Whether the server responds to a call with its questions, and never asks during the call."""
        return self.version in MODERN_PROTOCOL_VERSIONS

    def end(self) -> None:
        self.end_of_use.set()
        self.changed.set()

    def close(self) -> None:
        self.closed = True
        self.end()

    def repair_result(self, result: dict[str, Any]) -> None:
        if self.version:
            self.results.repair(result, self.version)
        else:
            repair_introduction(result)

    def take_stderr(self, data: bytes) -> None:
        """Keep the end of what the process writes before its first answer; later text may contain users' content."""
        if not self.version:
            self._stderr = (self._stderr + data)[-STDERR_BYTES_MAX:]

    def describe_stderr(self, *secrets: str) -> str:
        if self.version:
            return ""
        return mask_values(self._stderr.decode(errors="replace"), *secrets)[-STDERR_CHARS_MAX:].strip()

    @contextmanager
    def lend(self) -> Generator[McpSession]:
        self.users += 1
        try:
            yield self
        finally:
            self.users -= 1
            if self.ended:
                self.changed.set()

    async def wait_until_unused(self) -> None:
        """Return when no caller waits for a response that may still come."""
        while self.users and not self.closed:
            self.changed.clear()
            await self.changed.wait()

    async def on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self.changed.set()

    async def ask(self, request: Awaitable[T]) -> T:
        """Return the result of the SDK's `request`.

        Raises:
            RequestNotTaken: It was not accepted.
            ServerFailed: It failed otherwise.

        Neither affects other requests; the session ends if the server is gone or has forgotten it.
        """
        with follow_request() as sent, server_errors():
            try:
                return await request
            except MCPError as error:
                raise await self._explain(error, sent) from error

    async def _explain(self, error: MCPError, sent: SentRequest) -> ServerFailed:
        if isinstance(sent.error, CredentialRefused):
            return make_failure(sent.error)
        if sent.is_unknown_session:
            self._forget()
        elif sent.is_refused or sent.error is not None:
            await self._check()
        if self.is_forgotten and sent.is_refused:
            return RequestNotTaken("it has forgotten the session")
        if sent.is_unsent:
            return RequestNotTaken(str(sent.error))
        failure = make_failure(sent.error or error)
        failure.may_have_run = self.closed or sent.may_have_run
        return failure

    def _forget(self) -> None:
        self.is_forgotten = True
        self.end()

    async def _check(self) -> None:
        """Ping the server, and end the session if the server is gone or has forgotten it."""
        with follow_request() as sent:
            try:
                async with asyncio.timeout(CHECK_S):
                    if self.is_modern:
                        await self.client.session.send_discover(self.version)
                    else:
                        await self.client.session.send_ping()
            except TimeoutError:
                pass  # it is busy
            except MCPError:
                if sent.is_refused:
                    self._forget()
                elif sent.error is not None and not isinstance(sent.error, CredentialRefused):
                    self.end()

    async def follow_changes(self) -> None:
        """Follow changes of the tool list; returns immediately for servers that need no subscription."""
        capability = self.client.server_capabilities.tools
        if not self.is_modern or not (capability and capability.list_changed):
            return
        delay_s = LISTEN_S
        while not self.ended:
            try:
                async with self.client.listen(tools_list_changed=True) as subscription:
                    delay_s = LISTEN_S
                    self.changed.set()  # changes before the subscription are not reported
                    async for _ in subscription:
                        self.changed.set()
            except (MCPError, SubscriptionLost):
                await self._check()
            # Proxies end streams, and so do servers about to stop; calls are separate requests.
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, LISTEN_S_MAX)


@asynccontextmanager
async def open_session(
    settings: Settings, env: Mapping[str, str], authorization: str = "", handlers: SessionHandlers = SessionHandlers()
) -> AsyncGenerator[McpSession]:
    """Open a session for the block. Raises ServerFailed, even if the connection breaks inside it.

    The first request asks for the protocol versions. Older processes do not know it, and some end: they are started
    again without it.
    """
    async with AsyncExitStack() as stack:
        try:
            opened = _open_session(settings, env, authorization, handlers, "auto")
            session = await stack.enter_async_context(opened)
        except ServerFailed as failure:
            if not failure.has_ended:
                raise
            opened = _open_session(settings, env, authorization, handlers, "legacy")
            session = await stack.enter_async_context(opened)
        yield session


@asynccontextmanager
async def _open_session(
    settings: Settings, env: Mapping[str, str], authorization: str, handlers: SessionHandlers, mode: ConnectMode
) -> AsyncGenerator[McpSession]:
    session = McpSession()
    session.client = Client(
        open_transport(settings, env, authorization, session.close, session.repair_result, session.take_stderr),
        mode=mode,
        message_handler=session.on_message,
        cache=None,  # lists are asked for when they have changed, and kept by us
        client_info=Implementation(name="headrace", version="1"),
        sampling_callback=handlers.sampling,
        elicitation_callback=handlers.elicitation,
        list_roots_callback=handlers.roots,
    )
    start_s = settings.start_timeout_ms / 1000
    try:
        with server_errors():
            async with AsyncExitStack() as stack:
                try:
                    async with asyncio.timeout(start_s):
                        with follow_request(is_opening=True):
                            await stack.enter_async_context(session.client)
                except TimeoutError:
                    raise ServerFailed(f"it did not answer within {start_s:g} s") from None
                session.version = session.client.protocol_version
                try:
                    yield session
                finally:
                    session.close()
    except ServerFailed as failure:
        if isinstance(settings, Stdio):
            failure.stderr = session.describe_stderr(*settings.env.values())
            failure.has_ended = session.closed and not session.version and failure.__cause__ is not None
        raise
