"""Calls a server's tool; leaving cancels the call on the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

import mcp_types as types

from headrace.v1 import common_pb2, tools_pb2
from services.runtime.auth.identity import require_identity
from services.tools.errors import CredentialNeeded, InputNeeded, ToolFailed
from services.tools.mcp_client.live_calls import LIVE, Exchange, LiveCall, LiveCalls, Sampled, send_after_visits
from services.tools.mcp_client.oauth.authorizer import AUTHORIZE, RESUME_STATE, Authorizer
from services.tools.mcp_client.questions import Sampler
from services.tools.mcp_client.rounds import Rounds
from services.tools.mcp_client.sdk_errors import RequestNotTaken, ServerFailed
from services.tools.mcp_client.session import McpSession, SessionHandlers
from services.tools.mcp_client.settings import Settings
from services.tools.mcp_client.tool_results import stream_result
from services.tools.sandbox.command import begin_at_once
from services.tools.toolkit.commands import TIMEOUT_S, TIMEOUT_S_MAX
from services.tools.toolkit.tool import Effect, Execute, ToolContext, make_output

Send: TypeAlias = Callable[[McpSession, Exchange], Coroutine[Any, Any, types.CallToolResult]]

UNKNOWN = "; whether it took effect is not known"

LOST = "the call was waiting for a person when the connection to its server ended" + UNKNOWN


class SessionSource(Protocol):
    name: str
    settings: Settings
    live_calls: LiveCalls
    authorizer: Authorizer | None

    @property
    def is_modern(self) -> bool: ...

    async def find_authorization(self, context: ToolContext) -> str: ...

    def borrow_session(self, authorization: str) -> AbstractAsyncContextManager[McpSession]: ...

    def open_own_session(
        self, authorization: str, handlers: SessionHandlers
    ) -> AbstractAsyncContextManager[McpSession]: ...


def make_execute(server: SessionSource, tool: str, effect: Effect) -> Execute:

    def execute(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
        if server.settings.may_ask and not server.is_modern:
            return _execute_live(server, tool, effect, context)
        return execute_request(server, context, _make_send(server, tool, context))

    return authorizing(server, execute)


def authorizing(server: SessionSource, execute: Execute) -> Execute:
    """Return a function that does the same, and sends the user to the consent page if the server refuses access."""

    async def execute_authorized(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
        answers = [answer for answer in context.request.answers if answer.name.startswith(AUTHORIZE)]
        if any(answer.action != "accept" for answer in answers):
            raise ToolFailed(f"the user does not authorize the use of MCP server {server.name!r}")
        context = replace(context, resume_state="" if context.resume_state == RESUME_STATE else context.resume_state)
        try:
            async with aclosing(execute(context)) as deltas:
                async for delta in deltas:
                    yield delta
        except ServerFailed as failure:
            if server.authorizer is None or failure.challenge is None or not context.request.effect_key:
                raise ToolFailed(f"MCP server {server.name!r}: {failure}") from failure
            refused = await server.find_authorization(context)
            raise await server.authorizer.ask(require_identity(), refused, failure.challenge) from failure

    return execute_authorized


async def execute_request(
    server: SessionSource, context: ToolContext, send: Send
) -> AsyncGenerator[tools_pb2.ToolDelta]:
    """Stream the output of one request over a shared session; `send` makes the request."""
    exchange = Exchange()

    async def work() -> types.CallToolResult:
        try:
            return await attempt(context.begin)
        except RequestNotTaken:
            return await attempt(begin_at_once)

    async def attempt(begin: Callable[[], Awaitable[None]]) -> types.CallToolResult:
        async with server.borrow_session(await server.find_authorization(context)) as session:
            exchange.session = session
            await begin()
            return await session.ask(send(session, exchange))

    exchange.start(work())
    try:
        async with aclosing(_follow(server, context, exchange)) as deltas:
            async for delta in deltas:
                yield delta
    finally:
        await exchange.stop()


def _make_send(server: SessionSource, tool: str, context: ToolContext) -> Send:

    async def send(session: McpSession, exchange: Exchange) -> types.CallToolResult:
        if not server.settings.may_ask:
            return await _call_tool(session, tool, context, exchange)
        rounds = Rounds(server.name, server.settings, context.resume_state, context.request)
        answer = await rounds.call(session.client, tool, context.arguments, exchange.sample, exchange.note)
        session.results.remark_mismatch(tool, answer)
        return answer

    return send


async def _execute_live(
    server: SessionSource, tool: str, effect: Effect, context: ToolContext
) -> AsyncGenerator[tools_pb2.ToolDelta]:
    call = server.live_calls.take(context.request) if context.resume_state == LIVE else None
    if call is None:
        if context.resume_state and effect == "once":
            raise ToolFailed(f"MCP server {server.name!r}: {LOST}")
        call = LiveCall(server.name, server.settings, context.request)
        call.exchange.start(_call_live(server, tool, context, call))
    else:
        call.answer(context.request.answers)
    is_kept = False
    try:
        async with aclosing(_follow(server, context, call.exchange)) as deltas:
            async for delta in deltas:
                yield delta
    except InputNeeded:
        with _translate_errors(server, context, call.exchange):
            server.live_calls.keep(context.request, call)
        is_kept = True
        raise
    finally:
        if not is_kept:
            await call.exchange.stop()


async def _follow(
    server: SessionSource, context: ToolContext, exchange: Exchange
) -> AsyncGenerator[tools_pb2.ToolDelta]:
    """Stream an exchange's output. Raises InputNeeded if a person is asked, and then leaves the exchange running."""
    sampler = Sampler(server.name, server.settings.sampling, context)
    loop = asyncio.get_running_loop()
    due_s = loop.time() + _timeout_s(context)
    due_s_max = loop.time() + (context.timeout_s or TIMEOUT_S_MAX)
    while True:
        with _translate_errors(server, context, exchange):
            async with asyncio.timeout_at(due_s):
                event = await exchange.events.get()
        match event:
            case None:
                break
            case str():
                due_s = min(max(due_s, loop.time() + TIMEOUT_S), due_s_max)
                yield make_output("progress", event)
            case Sampled():
                result = await sampler.answer(event.params)
                if not event.result.done():
                    event.result.set_result(result)
                for delta in sampler.report():
                    yield delta
            case common_pb2.InputNeed():
                raise InputNeeded([event], LIVE)
    assert exchange.task is not None
    with _translate_errors(server, context, exchange):
        answer = await exchange.task
    async with aclosing(stream_result(context, answer)) as result_deltas:
        async for delta in result_deltas:
            yield delta


async def _call_live(server: SessionSource, tool: str, context: ToolContext, call: LiveCall) -> types.CallToolResult:
    authorization = await server.find_authorization(context)
    async with server.open_own_session(authorization, call.make_handlers()) as session:
        call.exchange.session = session
        await context.begin()

        def send() -> Coroutine[Any, Any, types.CallToolResult]:
            return _call_tool(session, tool, context, call.exchange)

        return await session.ask(send_after_visits(call, send) if server.settings.elicitation else send())


async def _call_tool(session: McpSession, tool: str, context: ToolContext, exchange: Exchange) -> types.CallToolResult:
    answer = await session.client.call_tool(tool, context.arguments, progress_callback=exchange.note)
    session.results.remark_mismatch(tool, answer)
    return answer


@contextmanager
def _translate_errors(server: SessionSource, context: ToolContext, exchange: Exchange) -> Generator[None]:
    try:
        yield
    except TimeoutError:
        doubt = UNKNOWN if exchange.session is not None else ""
        text = f"ended after {_timeout_s(context):g} s: its time was over{doubt}"
        raise ToolFailed(text) from None
    except ServerFailed as failure:
        if failure.is_refusal and context.credentials:
            raise CredentialNeeded(context.credentials[0].name, "refused") from failure
        if failure.is_refusal and server.authorizer is not None:
            raise
        doubt = UNKNOWN if failure.may_have_run else ""
        raise ToolFailed(f"MCP server {server.name!r}: {failure}{doubt}") from failure


def _timeout_s(context: ToolContext) -> float:
    return min(context.timeout_s or TIMEOUT_S, TIMEOUT_S_MAX)
