"""Keeps what a server lists for each user. A list is read with that user's own token, and shown to nobody else."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

import structlog

from services.runtime.auth.identity import Identity
from services.tools.mcp_client.sdk_errors import ServerFailed
from services.tools.toolkit.tool import Tool

LISTS_MAX = 256
"""Lists of one server; the least recently used makes room."""

FRESH_S = 60.0
"""Age at which a list is read again when its user next asks."""

AGAIN_S = 10.0
"""Wait before a list that could not be read is asked for again; the one before holds meanwhile."""

log = structlog.get_logger()


@dataclass(eq=False, slots=True)
class _UserList:
    header: str = ""
    """The Authorization header that the tools were listed with."""
    tools: Sequence[Tool] = ()
    due_s: float = 0.0
    """Time of the loop from which it is read again."""
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
        """Return the user's tools, as last listed if reading them takes longer than `wait_s`; none without a token."""
        entry = self._lists.setdefault(user, _UserList())
        self._lists.move_to_end(user)
        if len(self._lists) > LISTS_MAX:
            self._lists.popitem(last=False)
        if entry.reading is None:
            # A task of its own: a caller that leaves must not cut off the renewal of a token.
            entry.reading = self._group.create_task(self._read(user, entry))
        await asyncio.wait([entry.reading], timeout=wait_s)
        return entry.tools

    def forget(self, headers: Collection[str]) -> None:
        """Drop the lists that were read with these Authorization headers."""
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
                if entry.header == header:  # else its user has taken it back meanwhile
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
