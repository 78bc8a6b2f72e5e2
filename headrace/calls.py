"""Client methods built from the contract: one for each RPC with the option `client` in protos/.

`make gen` writes their types and comments to calls.pyi.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

from google.protobuf.message import Message

from headrace.call_arguments import list_arguments
from headrace.contract import RPCS, Rpc
from headrace.v1 import common_pb2


class Calls:
    """Base class with the methods; a subclass implements `_send`, `_send_all` and `_read`, which make the calls."""


def _make_call(rpc: Rpc) -> Callable[..., Any]:
    arguments = list_arguments(rpc)
    signature = Signature([argument.parameter for argument in arguments])
    fields = {argument.parameter.name: argument.field.name for argument in arguments}
    call = rpc.client or common_pb2.ClientCall()
    is_list = bool(call.returns) and rpc.descriptor.output_type.fields_by_name[call.returns].is_repeated

    def make_request(args: tuple[Any, ...], named: dict[str, Any]) -> Message:
        bound = signature.bind(*args, **named).arguments
        return rpc.request(**{fields[name]: value for name, value in bound.items()})

    def read(self: Any, /, *args: Any, **named: Any) -> Any:
        return self._read(rpc, make_request(args, named))

    async def send_all(self: Any, /, *args: Any, **named: Any) -> list[Any]:
        return [item async for item in self._send_all(rpc, make_request(args, named))]

    async def send(self: Any, /, *args: Any, **named: Any) -> Any:
        reply = await self._send(rpc, make_request(args, named))
        if not call.returns:
            return reply if reply.DESCRIPTOR.fields else None
        value = getattr(reply, call.returns)
        return list(value) if is_list else value

    made: Any = read if rpc.descriptor.server_streaming else send_all if call.all_pages else send
    made.__name__ = made.__qualname__ = call.name
    receiver = Parameter("self", Parameter.POSITIONAL_ONLY)
    made.__signature__ = signature.replace(parameters=[receiver, *signature.parameters.values()])
    return made


for _rpc in RPCS.values():
    if _rpc.client is not None:
        setattr(Calls, _rpc.client.name, _make_call(_rpc))
