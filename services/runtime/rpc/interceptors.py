"""The work before every RPC's handler: admission, rules, turns and limits of streams.

Streams are written with `context.write`, because gRPC never closes a generator that it stops reading; here it is closed
in the RPC's own task, so handlers may yield and need no `try`. A streaming handler may also send through
`push_stream.opening_sink`.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, aclosing
from contextvars import ContextVar
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from headrace.errors import CredentialEnded, HeadraceError, InvalidRequest, Overloaded, Unauthenticated
from services.runtime.auth import identity
from services.runtime.auth.audit_records import find_client_address
from services.runtime.auth.authenticator import Authenticator
from services.runtime.auth.callers import WITHOUT_USER
from services.runtime.calls.server_call import ServerCall
from services.runtime.capacity import RETRY_AFTER_S, Capacity, get_turnstile
from services.runtime.rpc import field_rules
from services.runtime.rpc.handling import IS_INNER, OPEN_STREAMS, Context, HandlingRpc

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

CheckCall: TypeAlias = Callable[[str, "identity.Identity | None"], None]
"""Raises HeadraceError to refuse a call, by its name on the wire."""

GRPC_METHODS = ("/grpc.health.", "/grpc.reflection.")
"""gRPC's own methods, which are neither logged nor limited."""

_UNREADABLE = object()

_is_service: ContextVar[bool] = ContextVar("is_service", default=False)
"""Whether the caller of this task's call has proved to be a service."""

Metadata: TypeAlias = Iterable[tuple[str, str | bytes]]


class RpcInterceptor(grpc.aio.ServerInterceptor):
    def __init__(
        self, stream_capacity: Capacity, authenticator: Authenticator, check_call: CheckCall | None = None
    ) -> None:
        self._check_call = check_call
        self._stream_capacity = stream_capacity
        self._authenticator = authenticator
        self._wrapped: dict[str, Handler] = {}

    @property
    def streams(self) -> int:
        return self._stream_capacity.used

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        method = handler_call_details.method
        if method not in self._wrapped:
            handler = await continuation(handler_call_details)
            # None for an unknown method: not kept, or callers could fill memory with names.
            if handler is None or method.startswith(GRPC_METHODS):
                return handler
            self._wrapped[method] = self._wrap_handler(handler, method)
        try:
            await self._admit_call(handler_call_details)
            if self._check_call is not None:
                self._check_call(method, identity.get_identity())
        except HeadraceError as error:
            return self._make_refusal(method, error, handler_call_details.invocation_metadata or ())
        return self._wrapped[method]

    def _wrap_handler(self, handler: Handler, method: str) -> Handler:
        read = _catch_unreadable(handler.request_deserializer)
        serializers = (read, handler.response_serializer)
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(
                self._wrap_unary(handler.unary_unary, method, _check_request), *serializers
            )
        if handler.stream_unary is not None:
            return grpc.stream_unary_rpc_method_handler(
                self._wrap_unary(self._end_with_credential(handler.stream_unary), method, _check_requests), *serializers
            )
        assert handler.unary_stream is not None, f"{method}: two-way streams are not part of the contract"
        serialize = handler.response_serializer
        assert serialize is not None, "generated code gives one"
        return grpc.unary_stream_rpc_method_handler(
            self._wrap_streaming(handler.unary_stream, method),
            read,
            lambda reply: reply if type(reply) is bytes else serialize(reply),
        )

    def _wrap_unary(self, answer: Any, method: str, checked: Callable[[Any], Any]) -> Any:
        async def call(request: Any, context: Context) -> Any:
            async with HandlingRpc(method, context) as done:
                reply = await answer(checked(request), context)
                done.replies = 1
                return reply

        return call

    def _wrap_streaming(self, generate: Any, method: str) -> Any:
        async def call(request: Any, context: Context) -> None:
            async with HandlingRpc(method, context) as done, self._ending_with_credential():
                _check_request(request)
                tenant = identity.current_tenant()
                await get_turnstile().pass_through(tenant)
                if not self._stream_capacity.has_room_for(tenant):
                    message = f"{self._stream_capacity.used} streams are open already; try again later"
                    raise Overloaded(message, retry_after_s=RETRY_AFTER_S)
                self._stream_capacity.acquire(tenant)
                OPEN_STREAMS.count += 1
                try:
                    answers = generate(request, context)
                    if inspect.iscoroutine(answers):
                        done.replies = await answers
                        return
                    write = context.write
                    async with aclosing(answers) as replies:
                        async for reply in replies:
                            await write(reply)
                            done.replies += 1
                finally:
                    if isinstance(context, ServerCall):
                        done.replies = context.sent  # also if the client's messages ended early
                    self._stream_capacity.release(tenant)
                    OPEN_STREAMS.count -= 1

        return call

    def _ending_with_credential(self) -> AbstractAsyncContextManager[None]:
        """Run a call's block until its caller's credential ends; raises CredentialEnded."""
        return self._authenticator.ending_with_credential(identity.get_identity())

    def _end_with_credential(self, answer: Any) -> Any:
        async def answer_until_end(requests: Any, context: Context) -> Any:
            async with self._ending_with_credential():
                return await answer(requests, context)

        return answer_until_end

    def _make_refusal(self, method: str, error: HeadraceError, metadata: Metadata) -> Handler:
        """Return a handler that fails without reading a request, for methods of any kind."""

        async def refuse(_: Any, context: Context) -> None:
            if isinstance(error, Unauthenticated | CredentialEnded):
                # A facade that does not check credentials, and has proved itself, sends their origin.
                address = find_client_address(metadata) if _is_service.get() else ""
                self._authenticator.refused.note(address or context.peer() or "")
            async with HandlingRpc(method, context):
                raise error

        return grpc.stream_stream_rpc_method_handler(refuse)

    async def _admit_call(self, details: Any) -> None:
        """Adopt the caller's identity in the call's task, before its request is read."""
        # grpcio exposes neither certificates nor connections here; its servers have no TLS.
        call: ServerCall | None = getattr(details, "call", None)
        admit, metadata = self._authenticator.admit_call, details.invocation_metadata or ()
        IS_INNER.set(details.method in WITHOUT_USER)
        _is_service.set(False)

        def note_service() -> None:
            IS_INNER.set(True)
            _is_service.set(True)
            if call is not None:
                call.note_admitted()

        if call is None:
            identity.adopt_identity(await admit(details.method, metadata, {}, note_service=note_service))
            return
        who = await admit(details.method, metadata, call.auth_context(), call.is_foreign_user, note_service)
        identity.adopt_identity(who)
        if not _is_service.get():  # of a service, it is noted already
            call.note_admitted()


def _catch_unreadable(parse: Callable[[bytes], Any] | None) -> Callable[[bytes], Any]:
    """Return `parse` with failures marked as the caller's, which gRPC would report as INTERNAL."""
    assert parse is not None, "generated code gives one"

    def parse_or_mark(data: bytes) -> Any:
        try:
            return parse(data)
        except DecodeError:
            return _UNREADABLE

    return parse_or_mark


def _check_request(request: Any) -> Any:
    if request is _UNREADABLE:
        raise InvalidRequest("the request's bytes are no message of this RPC", field="", rule="must be its message")
    field_rules.check_rules(request)
    return request


async def _check_requests(requests: AsyncIterator[Any]) -> AsyncGenerator[Any]:
    async for request in requests:
        yield _check_request(request)
