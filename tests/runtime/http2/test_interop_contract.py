"""Every RPC of the contract, as generated code has it, between our ends and grpcio's: messages as full as can be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf.descriptor import MethodDescriptor

from headrace.v1 import (
    agent_pb2,
    agent_pb2_grpc,
    keys_pb2,
    keys_pb2_grpc,
    llm_pb2,
    llm_pb2_grpc,
    memory_pb2,
    memory_pb2_grpc,
    operator_pb2,
    operator_pb2_grpc,
    schedule_pb2,
    schedule_pb2_grpc,
    spend_pb2,
    spend_pb2_grpc,
    tools_pb2,
    tools_pb2_grpc,
    webhook_pb2,
    webhook_pb2_grpc,
)
from tests.support.facade.messages import fill_message
from tests.support.http2.ends import Stack, between, connecting

STUBS = {
    agent_pb2.DESCRIPTOR: agent_pb2_grpc,
    keys_pb2.DESCRIPTOR: keys_pb2_grpc,
    llm_pb2.DESCRIPTOR: llm_pb2_grpc,
    memory_pb2.DESCRIPTOR: memory_pb2_grpc,
    operator_pb2.DESCRIPTOR: operator_pb2_grpc,
    schedule_pb2.DESCRIPTOR: schedule_pb2_grpc,
    spend_pb2.DESCRIPTOR: spend_pb2_grpc,
    webhook_pb2.DESCRIPTOR: webhook_pb2_grpc,
    tools_pb2.DESCRIPTOR: tools_pb2_grpc,
}
RPCS = [rpc for file in STUBS for service in file.services_by_name.values() for rpc in service.methods]
COUNT = 3
"""Messages of a stream."""


class Echo:
    """Answers with a full message of the reply's type, keeps what it was asked."""

    def __init__(self, rpc: MethodDescriptor) -> None:
        self.heard: list[Any] = []
        self._reply = fill_message(rpc.output_type)
        names = {method.name: None for method in rpc.containing_service.methods}
        served = self._stream if rpc.server_streaming else self._upload if rpc.client_streaming else self._answer
        self.servicer = SimpleNamespace(**names | {rpc.name: served})

    async def _answer(self, request: Any, context: Any) -> Any:
        self.heard.append(request)
        return self._reply

    async def _upload(self, requests: Any, context: Any) -> Any:
        self.heard += [request async for request in requests]
        return self._reply

    async def _stream(self, request: Any, context: Any) -> Any:
        self.heard.append(request)
        for _ in range(COUNT):
            yield self._reply


@between
@pytest.mark.parametrize("rpc", RPCS, ids=lambda rpc: rpc.full_name)
async def test_its_messages_pass_whole_both_ways(client: Stack, server: Stack, rpc: MethodDescriptor) -> None:
    service, generated = rpc.containing_service.name, STUBS[rpc.containing_service.file]
    echo, request, reply = Echo(rpc), fill_message(rpc.input_type), fill_message(rpc.output_type)

    def add(server: Any) -> None:
        getattr(generated, f"add_{service}Servicer_to_server")(echo.servicer, server)

    async with connecting(client, server, add) as caller:
        method = getattr(getattr(generated, f"{service}Stub")(caller.channel), rpc.name)
        if rpc.server_streaming:
            assert [answer async for answer in method(request)] == [reply] * COUNT
        elif rpc.client_streaming:
            assert await method(iter([request] * COUNT)) == reply
        else:
            assert await method(request) == reply
    assert echo.heard == [request] * (COUNT if rpc.client_streaming else 1)


def test_no_rpc_is_left_out() -> None:
    assert len(RPCS) == len({rpc.full_name for rpc in RPCS}) > 40
    assert not [rpc.name for rpc in RPCS if rpc.server_streaming and rpc.client_streaming]
