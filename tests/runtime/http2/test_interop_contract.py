"""Every RPC of the contract, as the generated code defines it, between our client and server and grpcio's, with all
fields set.
"""

from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf.descriptor import MethodDescriptor

from tests.support.contract import RPCS, get_stubs
from tests.support.facade.messages import fill_message
from tests.support.http2.ends import Stack, between, connecting

COUNT = 3
"""Number of messages in a stream."""


class Echo:
    """Answers with a full message of the reply's type, and keeps the requests."""

    def __init__(self, rpc: MethodDescriptor) -> None:
        self.received: list[Any] = []
        self._reply = fill_message(rpc.output_type)
        names = {method.name: None for method in rpc.containing_service.methods}
        served = self._stream if rpc.server_streaming else self._upload if rpc.client_streaming else self._answer
        self.servicer = SimpleNamespace(**names | {rpc.name: served})

    async def _answer(self, request: Any, context: Any) -> Any:
        self.received.append(request)
        return self._reply

    async def _upload(self, requests: Any, context: Any) -> Any:
        self.received += [request async for request in requests]
        return self._reply

    async def _stream(self, request: Any, context: Any) -> Any:
        self.received.append(request)
        for _ in range(COUNT):
            yield self._reply


@between
@pytest.mark.parametrize("rpc", RPCS.values(), ids=lambda rpc: rpc.full_name)
async def test_messages_of_every_rpc_are_transferred_completely(
    client: Stack, server: Stack, rpc: MethodDescriptor
) -> None:
    service, stubs = rpc.containing_service.name, get_stubs(rpc.containing_service)
    echo, request, reply = Echo(rpc), fill_message(rpc.input_type), fill_message(rpc.output_type)

    def add(server: Any) -> None:
        getattr(stubs, f"add_{service}Servicer_to_server")(echo.servicer, server)

    async with connecting(client, server, add) as caller:
        method = getattr(getattr(stubs, f"{service}Stub")(caller.channel), rpc.name)
        if rpc.server_streaming:
            assert [answer async for answer in method(request)] == [reply] * COUNT
        elif rpc.client_streaming:
            assert await method(iter([request] * COUNT)) == reply
        else:
            assert await method(request) == reply
    assert echo.received == [request] * (COUNT if rpc.client_streaming else 1)


def test_every_kind_of_rpc_is_covered() -> None:
    assert len(RPCS) > 100
    assert not [rpc.name for rpc in RPCS.values() if rpc.server_streaming and rpc.client_streaming]
