"""grpc.testing.TestService as described by grpc's page of interop tests, on our server.

https://github.com/grpc/grpc/blob/master/doc/interop-test-descriptions.md
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import MethodDescriptor

SERVICE = "grpc.testing.TestService"
UNIMPLEMENTED = "UnimplementedCall"
"""A method that TestService describes and nobody serves."""

ECHO_INITIAL, ECHO_TRAILING = "x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin"
STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}


class Contract:
    """The service's methods and messages, from its descriptors."""

    def __init__(self, descriptors: bytes) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
            self._pool.Add(file)  # pyright: ignore[reportUnknownMemberType] - its stub has no types
        self.methods: dict[str, MethodDescriptor] = dict(self._pool.FindServiceByName(SERVICE).methods_by_name)

    def make(self, name: str, **fields: Any) -> Any:
        return self.get_class(name)(**fields)

    def get_class(self, name: str) -> Any:
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(f"grpc.testing.{name}"))

    def make_payload(self, size: int) -> Any:
        return self.make("Payload", body=bytes(size))


class InteropService:
    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self.peers: set[str] = set()
        """Where unary calls came from."""

    def add_to(self, server: grpc.aio.Server) -> None:
        handlers = {
            name: self._make_handler(method)
            for name, method in self._contract.methods.items()
            if name != UNIMPLEMENTED and hasattr(self, name)
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    def _make_handler(self, method: MethodDescriptor) -> grpc.RpcMethodHandler[Any, Any]:
        kinds: dict[tuple[bool, bool], Any] = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }
        return kinds[method.client_streaming, method.server_streaming](
            getattr(self, method.name),
            request_deserializer=self._contract.get_class(method.input_type.name).FromString,
            response_serializer=self._contract.get_class(method.output_type.name).SerializeToString,
        )

    async def EmptyCall(self, request: Any, context: Any) -> Any:
        return self._contract.make("Empty")

    async def UnaryCall(self, request: Any, context: Any) -> Any:
        self.peers.add(context.peer())
        await _echo_metadata(context)
        await _echo_status(request, context)
        return self._contract.make("SimpleResponse", payload=self._contract.make_payload(request.response_size))

    async def StreamingOutputCall(self, request: Any, context: Any) -> AsyncGenerator[Any]:
        async for answer in self._answer(request):
            yield answer

    async def StreamingInputCall(self, requests: AsyncIterator[Any], context: Any) -> Any:
        size = 0
        async for request in requests:
            size += len(request.payload.body)
        return self._contract.make("StreamingInputCallResponse", aggregated_payload_size=size)

    async def FullDuplexCall(self, requests: AsyncIterator[Any], context: Any) -> AsyncGenerator[Any]:
        await _echo_metadata(context)
        async for request in requests:
            await _echo_status(request, context)
            async for answer in self._answer(request):
                yield answer

    async def HalfDuplexCall(self, requests: AsyncIterator[Any], context: Any) -> AsyncGenerator[Any]:
        for request in [request async for request in requests]:
            async for answer in self._answer(request):
                yield answer

    async def _answer(self, request: Any) -> AsyncGenerator[Any]:
        for parameters in request.response_parameters:
            await asyncio.sleep(parameters.interval_us / 1e6)
            payload = self._contract.make_payload(parameters.size)
            yield self._contract.make("StreamingOutputCallResponse", payload=payload)


async def _echo_metadata(context: Any) -> None:
    metadata = dict(context.invocation_metadata())
    if ECHO_INITIAL in metadata:
        await context.send_initial_metadata([(ECHO_INITIAL, metadata[ECHO_INITIAL])])
    if ECHO_TRAILING in metadata:
        context.set_trailing_metadata([(ECHO_TRAILING, metadata[ECHO_TRAILING])])


async def _echo_status(request: Any, context: Any) -> None:
    status = request.response_status
    if status.code:
        await context.abort(STATUS_CODES[status.code], status.message)
