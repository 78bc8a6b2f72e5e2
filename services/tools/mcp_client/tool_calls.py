"""Calls a server's tool; leaving cancels the call there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, Protocol

import mcp_types as types
from mcp import MCPError

from headrace.v1 import tools_pb2
from services.tools.errors import CredentialNeeded, ToolFailed
from services.tools.mcp_client.sdk_errors import ServerFailed, server_errors
from services.tools.mcp_client.session import McpSession
from services.tools.mcp_client.tool_results import stream_result
from services.tools.toolkit.commands import TIMEOUT_S, TIMEOUT_S_MAX
from services.tools.toolkit.context import ToolContext
from services.tools.toolkit.credentials import find_authorization
from services.tools.toolkit.tool import Execute, make_output

PROGRESS_MAX = 100
"""Progress notes that wait for a slow reader; further ones are dropped."""

PROGRESS_CHARS_MAX = 1_000

UNKNOWN = "; whether it took effect is not known"


class SessionSource(Protocol):
    name: str

    def borrow_session(self, authorization: str) -> AbstractAsyncContextManager[McpSession]: ...


def make_execute(server: SessionSource, tool: str) -> Execute:

    async def execute(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
        notes: asyncio.Queue[str | None] = asyncio.Queue()
        task = asyncio.create_task(_call_tool(server, tool, context, notes))
        task.add_done_callback(lambda _: notes.put_nowait(None))
        try:
            while (note := await notes.get()) is not None:
                yield make_output("progress", note)
            answer = await task
        finally:
            task.cancel()
            await asyncio.wait([task])
        async with aclosing(stream_result(context, answer)) as result_deltas:
            async for delta in result_deltas:
                yield delta

    return execute


async def _call_tool(
    server: SessionSource, tool: str, context: ToolContext, notes: asyncio.Queue[str | None]
) -> types.CallToolResult:
    timeout_s = min(context.timeout_s or TIMEOUT_S, TIMEOUT_S_MAX)

    async def note(progress: float, total: float | None, message: str | None) -> None:
        if notes.qsize() < PROGRESS_MAX:
            share = f"{progress:g}/{total:g}" if total else f"{progress:g}"
            notes.put_nowait(f"{share} {message or ''}".strip()[:PROGRESS_CHARS_MAX] + "\n")

    session: McpSession | None = None
    authorization = find_authorization(server.name, context.credentials)
    try:
        async with asyncio.timeout(timeout_s), server.borrow_session(authorization) as session:
            await context.begin()
            return await _await_answer(
                session, session.client.call_tool(tool, context.arguments, progress_callback=note)
            )
    except TimeoutError:
        doubt = UNKNOWN if session is not None else ""
        raise ToolFailed(f"ended after {timeout_s:g} s: its time was over{doubt}") from None
    except ServerFailed as failure:
        if failure.is_refusal and context.credentials:
            raise CredentialNeeded(context.credentials[0].name, "refused") from failure
        doubt = UNKNOWN if session is not None and session.ended else ""
        raise ToolFailed(f"MCP server {server.name!r}: {failure}{doubt}") from failure


async def _await_answer(session: McpSession, task: Coroutine[Any, Any, types.CallToolResult]) -> types.CallToolResult:
    with server_errors():
        try:
            return await task
        except MCPError as error:
            session.on_error(error)
            raise
