"""One session with a server, owned by a task: the SDK's client must be closed by the task that has opened it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from mcp import Client, Implementation, MCPError
from mcp.client.session import ElicitationFnT, IncomingMessage, ListRootsFnT, SamplingFnT
from mcp_types import CONNECTION_CLOSED, ToolListChangedNotification
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from services.tools.mcp_client.sdk_errors import ServerFailed, server_errors
from services.tools.mcp_client.settings import Settings
from services.tools.mcp_client.transports import open_transport

OPEN_S = 20.0
"""Time for a server to start or be reached, and to introduce itself."""

TERMINATED = "Session terminated"
"""The SDK has only this message for a session that an HTTP server has forgotten (mcp 2.3), and no code."""


@dataclass(frozen=True, slots=True)
class SessionHandlers:
    """What answers a server's own requests; what is None it is told not to ask for."""

    sampling: SamplingFnT | None = None
    elicitation: ElicitationFnT | None = None
    roots: ListRootsFnT | None = None


class McpSession:
    client: Client

    def __init__(self) -> None:
        self.list_changed = asyncio.Event()
        """Set also when `ended` has changed."""
        self.ended = False

    @property
    def is_modern(self) -> bool:
        """Whether it answers a call with what it asks, and never asks while the call runs."""
        return self.client.protocol_version in MODERN_PROTOCOL_VERSIONS

    def end(self) -> None:
        self.ended = True
        self.list_changed.set()

    async def on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self.list_changed.set()

    def on_error(self, error: MCPError) -> None:
        if error.code == CONNECTION_CLOSED or error.message == TERMINATED:
            self.end()

    async def follow_changes(self) -> None:
        """Follows changes of the tool list; ends at once for servers that need no subscription."""
        capability = self.client.server_capabilities.tools
        if not self.is_modern or not (capability and capability.list_changed):
            return
        async with self.client.listen(tools_list_changed=True) as subscription:
            self.list_changed.set()  # nobody reports what changed between the first list and now
            async for _ in subscription:
                self.list_changed.set()
        self.end()  # a server that stops telling is about to stop


@asynccontextmanager
async def open_session(
    settings: Settings, env: Mapping[str, str], authorization: str = "", handlers: SessionHandlers = SessionHandlers()
) -> AsyncGenerator[McpSession]:
    """Opens a session for the block; raises ServerFailed, also when the connection breaks inside it."""
    session = McpSession()
    session.client = Client(
        open_transport(settings, env, authorization, session.end),
        message_handler=session.on_message,
        cache=None,  # lists are asked for when they have changed, and kept by us
        client_info=Implementation(name="headrace", version="1"),
        sampling_callback=handlers.sampling,
        elicitation_callback=handlers.elicitation,
        list_roots_callback=handlers.roots,
    )
    with server_errors():
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(OPEN_S):
                    await stack.enter_async_context(session.client)
            except TimeoutError:
                raise ServerFailed(f"it did not answer within {OPEN_S:g} s") from None
            try:
                yield session
            finally:
                session.end()
