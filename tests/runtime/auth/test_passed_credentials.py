"""Users' credentials for tools go on to runs and to the execution of tools, and to no other call of a peer."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from services.runtime.rpc.channels import open_channel

GIVEN = (("x-request-id", "r"), ("x-tool-bank-credential", "s3cret"), ("x-mcp-files-authorization", "Bearer me"))

TAKING = ["AgentService/Query", "AgentService/Submit", "GateService/AnswerGate", "ToolService/Execute"]
OTHERS = ["MemoryService/Append", "LlmService/StreamChat", "ScheduleService/ListSchedules", "ToolService/ListTools"]


class Recorder(grpc.GenericRpcHandler):
    """Answers every call with nothing, and keeps what came with it."""

    def __init__(self) -> None:
        self.metadata: dict[str, Any] = {}

    def service(self, handler_call_details: Any) -> Any:
        async def answer(request: bytes, context: Any) -> bytes:
            self.metadata = dict(context.invocation_metadata())
            return b""

        return grpc.unary_unary_rpc_method_handler(answer)


@asynccontextmanager
async def recording() -> AsyncGenerator[tuple[Recorder, str]]:
    server, recorder = grpc.aio.server(), Recorder()
    server.add_generic_rpc_handlers((recorder,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield recorder, f"127.0.0.1:{port}"
    await server.stop(None)


@pytest.mark.parametrize("method", TAKING + OTHERS)
async def test_credentials_reach_only_those_who_need_them(method: str) -> None:
    async with recording() as (recorder, address), open_channel(address) as channel:
        call: Any = channel.unary_unary(f"/headrace.v1.{method}")
        await call(b"", metadata=GIVEN)
    passed = {key for key, _ in GIVEN} & recorder.metadata.keys()
    assert passed == ({key for key, _ in GIVEN} if method in TAKING else {"x-request-id"})
