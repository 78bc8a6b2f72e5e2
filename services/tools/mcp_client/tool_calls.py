"""One call of a server's tool: its progress as output, its answer as the result; leaving cancels it at the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, Protocol

import mcp_types as types
from mcp import MCPError

from headrace.v1 import tools_pb2
from services.runtime.rpc.call_ids import find_mcp_credential
from services.tools.errors import ToolFailed
from services.tools.mcp_client.sdk_errors import ServerFailed, server_errors
from services.tools.mcp_client.session import Session
from services.tools.mcp_client.tool_results import deltas
from services.tools.toolkit.commands import TIMEOUT_S, TIMEOUT_S_MAX
from services.tools.toolkit.tool import Call, Execute, output

PROGRESS_MAX = 100
"""Notes that wait for a slow reader; further ones are left out."""

PROGRESS_CHARS_MAX = 1_000

UNKNOWN = "; whether it took effect is not known"
"""What a model must be told of a call that was sent and not answered."""


class Sessions(Protocol):
    """A server, to a call."""

    name: str

    def session(self, authorization: str) -> AbstractAsyncContextManager[Session]: ...


def calls(server: Sessions, tool: str) -> Execute:
    """What executes the server's tool."""

    async def execute(call: Call) -> AsyncGenerator[tools_pb2.ToolDelta]:
        notes: asyncio.Queue[str | None] = asyncio.Queue()
        asking = asyncio.create_task(_ask(server, tool, call, notes))
        asking.add_done_callback(lambda _: notes.put_nowait(None))
        try:
            while (note := await notes.get()) is not None:
                yield output("progress", note)
            answer = await asking
        finally:
            asking.cancel()
            await asyncio.wait([asking])
        async with aclosing(deltas(call, answer)) as found:
            async for delta in found:
                yield delta

    return execute


async def _ask(server: Sessions, tool: str, call: Call, notes: asyncio.Queue[str | None]) -> types.CallToolResult:
    timeout_s = min(call.timeout_s or TIMEOUT_S, TIMEOUT_S_MAX)

    async def note(progress: float, total: float | None, message: str | None) -> None:
        if notes.qsize() < PROGRESS_MAX:
            share = f"{progress:g}/{total:g}" if total else f"{progress:g}"
            notes.put_nowait(f"{share} {message or ''}".strip()[:PROGRESS_CHARS_MAX] + "\n")

    session: Session | None = None
    try:
        async with asyncio.timeout(timeout_s), server.session(find_mcp_credential(server.name)) as session:
            return await _answer(session, session.client.call_tool(tool, call.arguments, progress_callback=note))
    except TimeoutError:
        doubt = UNKNOWN if session is not None else ""
        raise ToolFailed(f"ended after {timeout_s:g} s: its time was over{doubt}") from None
    except ServerFailed as failure:
        doubt = UNKNOWN if session is not None and session.ended else ""
        raise ToolFailed(f"MCP server {server.name!r}: {failure}{doubt}") from failure


async def _answer(session: Session, asking: Coroutine[Any, Any, types.CallToolResult]) -> types.CallToolResult:
    with server_errors():
        try:
            return await asking
        except MCPError as error:
            session.judge(error)
            raise
