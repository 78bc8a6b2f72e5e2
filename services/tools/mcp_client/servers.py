from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from services.runtime.files.file_watch import watching_paths
from services.runtime.net.allow_list import AllowList
from services.tools.mcp_client.settings import BadMcpFile, Http, McpFile, Settings, read_servers
from services.tools.toolkit.tool import Tool

if TYPE_CHECKING:
    from services.tools.mcp_client.oauth.token_store import TokenStore
    from services.tools.mcp_client.server import McpServer

FILE = "mcp.json"

START_S = 2.0
"""Time to wait for tools at the service's start, so that a resumed run finds them."""

OWN_LIST_S = 5.0
"""Time to wait for a user's own list; after that, the last listed tools are used."""

log = structlog.get_logger()

ReplaceSource = Callable[[str, Sequence[Tool]], None]


class McpServers:
    def __init__(
        self,
        path: Path,
        env: Mapping[str, str],
        put: ReplaceSource,
        group: asyncio.TaskGroup,
        tokens: TokenStore | None = None,
    ) -> None:
        """`tokens` are those of users who have authorized Headrace; None: users cannot authorize."""
        self._tokens = tokens
        self._path = path
        self._env = env
        self._put = put
        self._group = group
        self._running: dict[str, tuple[McpServer, asyncio.Task[None]]] = {}

    def read_file(self) -> McpFile | BadMcpFile:
        """Read mcp.json; blocks, and may run in a thread."""
        try:
            stated = read_servers(self._path, self._env)
        except BadMcpFile as problem:
            return problem
        if stated.servers:
            _import_sdk()
        return stated

    def follow(self, stated: McpFile | BadMcpFile) -> None:
        """Start and stop servers according to the file; a bad file changes nothing."""
        if isinstance(stated, BadMcpFile):
            log.error("mcp file refused", file=self._path.name, problem=str(stated), servers_kept=len(self._running))
            return
        for name, problem in stated.problems.items():
            log.error("mcp server refused", file=self._path.name, server=name, problem=problem)
        for name, (server, task) in list(self._running.items()):
            if stated.servers.get(name) != server.settings:
                task.cancel()
                del self._running[name]
        for name, settings in stated.servers.items():
            if isinstance(settings, Http) and settings.oauth is not None and self._tokens is None:
                problem = "oauth: HEADRACE_TOOLS_SECRETS_KEY is not set"
                log.error("mcp server refused", file=self._path.name, server=name, problem=problem)
            elif name not in self._running:
                self._start_server(name, settings)

    async def wait_tried(self) -> None:
        for server, _ in list(self._running.values()):
            await server.tried.wait()

    async def list_own_tools(self) -> list[Tool]:
        """Return the tools that servers list only for the current user."""
        lists = await asyncio.gather(*(server.list_own_tools(OWN_LIST_S) for server, _ in self._running.values()))
        return [tool for tools in lists for tool in tools]

    async def find_own_tools(self, name: str) -> list[Tool]:
        """Return the user's tools that a call of `name` may mean, even if listing takes a while."""
        found: list[Tool] = []
        for key, (server, _) in list(self._running.items()):
            if name.casefold().startswith(f"{key}__".casefold()):
                found += await server.find_own_tools(name)
        return found

    def note_revocation(self, name: str, headers: Collection[str]) -> None:
        """Stop using the sessions of a user's revoked authorization."""
        if name in self._running:
            self._running[name][0].end_sessions(headers)

    def has_users(self, name: str) -> bool:
        """Return whether there is a server of this name at which users authorize Headrace."""
        return name in self._running and self._running[name][0].authorizer is not None

    def find_allow(self, name: str) -> AllowList:
        """Return the hosts outside the public web that the authorization of a server's users may reach."""
        settings = self._running[name][0].settings if name in self._running else None
        return settings.allow if isinstance(settings, Http) else AllowList()

    def stop(self) -> None:
        for _, task in self._running.values():
            task.cancel()

    def _start_server(self, name: str, settings: Settings) -> None:
        from services.tools.mcp_client.server import McpServer

        source = f"mcp server {name}"

        def offer(tools: Sequence[Tool]) -> None:
            # A replaced server that is still stopping must not change the tools.
            current = self._running.get(name)
            if current is None or current[0] is server:
                self._put(source, tools)

        self._put(source, ())  # tools of an earlier server of this name
        server = McpServer(name, settings, self._env, offer, self._tokens)
        self._running[name] = server, self._group.create_task(server.run())


def prepare_mcp(config_dir: Path, env: Mapping[str, str]) -> None:
    """Import the servers' libraries if mcp.json names any, in parallel with the rest of the start; blocks."""
    with suppress(BadMcpFile):  # reported when it is read for use
        if read_servers(config_dir / FILE, env).servers:
            _import_sdk()


def _import_sdk() -> None:
    # It takes a third of a second, which only installations with a server pay, and not on the loop.
    importlib.import_module("services.tools.mcp_client.server")


@asynccontextmanager
async def run_mcp_servers(
    config_dir: Path, env: Mapping[str, str], put: ReplaceSource, tokens: TokenStore | None = None
) -> AsyncGenerator[McpServers]:
    """Run the servers inside the block; leaving it stops their processes."""
    path = config_dir / FILE
    async with asyncio.TaskGroup() as group:
        servers = McpServers(path, env, put, group, tokens)
        try:
            async with watching_paths([path], servers.read_file, servers.follow):
                with suppress(TimeoutError):
                    async with asyncio.timeout(START_S):
                        await servers.wait_tried()
                yield servers
        finally:
            servers.stop()
