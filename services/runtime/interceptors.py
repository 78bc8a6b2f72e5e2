"""What happens around every RPC: ids into context, rules checked, errors to statuses, one log line.

Streams are written with `context.write`, not yielded: gRPC never closes a generator that it stops reading, so a
yielding handler would be cleaned up late, in some other task. Here it is closed in the RPC's own task, innermost
first. Handlers may therefore yield, and contain no `try`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeAlias

import grpc
import structlog

from headrace.errors import HeadraceError, Overloaded, to_status
from services.runtime import ids, rules

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]

PLUMBING = ("/grpc.health.", "/grpc.reflection.")
"""Methods of gRPC itself: not logged, not limited."""

STATUS_DETAILS = "grpc-status-details-bin"

log = structlog.get_logger()


class RpcInterceptor(grpc.aio.ServerInterceptor):
    """Outermost and only: nothing else aborts an RPC. Shared by all RPCs of a server."""

    def __init__(self, streams_max: int) -> None:
        self._streams_max = streams_max
        self._streams = 0
        self._wrapped: dict[str, Handler] = {}

    @property
    def streams(self) -> int:
        """Streaming RPCs that are open now."""
        return self._streams

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        method = handler_call_details.method
        if method not in self._wrapped:
            handler = await continuation(handler_call_details)
            # None for a method that nobody has: not kept, or callers could fill memory with names.
            if handler is None or method.startswith(PLUMBING):
                return handler
            self._wrapped[method] = self._wrap(handler, method)
        return self._wrapped[method]

    def _wrap(self, handler: Handler, method: str) -> Handler:
        serializers = (handler.request_deserializer, handler.response_serializer)
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(self._unary(handler.unary_unary, method, True), *serializers)
        if handler.stream_unary is not None:
            return grpc.stream_unary_rpc_method_handler(self._unary(handler.stream_unary, method, False), *serializers)
        assert handler.unary_stream is not None, f"{method}: two-way streams are not part of the contract"
        return grpc.unary_stream_rpc_method_handler(self._streaming(handler.unary_stream, method), *serializers)

    def _unary(self, answer: Any, method: str, checked: bool) -> Any:
        async def call(request: Any, context: Context) -> Any:
            async with _around(method, context) as done:
                if checked:
                    rules.check(request)
                reply = await answer(request, context)
                done["replies"] = 1
                return reply

        return call

    def _streaming(self, generate: Any, method: str) -> Any:
        async def call(request: Any, context: Context) -> None:
            async with _around(method, context) as done:
                rules.check(request)
                if self._streams >= self._streams_max:
                    raise Overloaded(f"{self._streams_max} streams are open already; try again later")
                self._streams += 1
                try:
                    write = context.write
                    async with aclosing(generate(request, context)) as replies:
                        async for reply in replies:
                            await write(reply)
                            done["replies"] += 1
                finally:
                    self._streams -= 1

        return call


@asynccontextmanager
async def _around(method: str, context: Context) -> AsyncGenerator[dict[str, int]]:
    """Ids, errors to statuses, and the RPC's one log line."""
    started = time.monotonic()
    done, code = {"replies": 0}, grpc.StatusCode.OK
    request_id = ids.adopt(context.invocation_metadata() or ())
    with structlog.contextvars.bound_contextvars(request_id=request_id):
        try:
            yield done
        except HeadraceError as error:
            code = error.code
            details = ((STATUS_DETAILS, to_status(error).SerializeToString()),)
            await context.abort(code, error.message, details)
        except asyncio.CancelledError:
            code = grpc.StatusCode.CANCELLED
            raise
        except grpc.aio.AioRpcError as error:
            # A peer's own status that is none of ours: its deadline was ours, or it has a bug, which it has logged.
            code = error.code()
            await context.abort(code, error.details() or "a peer failed")
        except NotImplementedError:
            # What the generated base class raises for an RPC that a service leaves out.
            code = grpc.StatusCode.UNIMPLEMENTED
            await context.abort(code, f"{method} is not implemented")
        except Exception:
            code = grpc.StatusCode.INTERNAL
            # A write to a vanished client fails first and its cancellation arrives at the next await: let it,
            # or every hang-up would be reported as a bug.
            await asyncio.sleep(0)
            log.exception("rpc failed", method=method)
            await context.abort(code, "internal error")
        finally:
            elapsed_ms = round((time.monotonic() - started) * 1000, 1)
            log.info(
                "rpc done", method=method, code=code.name, ms=elapsed_ms, replies=done["replies"], peer=context.peer()
            )
