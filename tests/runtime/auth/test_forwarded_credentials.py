"""Users' credentials for tools are forwarded to runs and to the execution of tools, and to no other call between
services.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from services.runtime.rpc.channels import open_channel

GIVEN = (("x-request-id", "r"), ("x-tool-bank-credential", "s3cret"), ("x-mcp-files-authorization", "Bearer me"))

FORWARDING = ["AgentService/Query", "AgentService/Submit", "GateService/AnswerGate", "ToolService/Execute"]
OTHERS = ["MemoryService/Append", "LlmService/StreamChat", "ScheduleService/ListSchedules", "ToolService/ListTools"]


class Recorder(grpc.GenericRpcHandler):
    """Answers every call with nothing, and records its metadata."""

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


@pytest.mark.parametrize("method", FORWARDING + OTHERS)
async def test_tool_credentials_are_forwarded_only_to_rpcs_that_need_them(method: str) -> None:
    async with recording() as (recorder, address), open_channel(address) as channel:
        call: Any = channel.unary_unary(f"/headrace.v1.{method}")
        await call(b"", metadata=GIVEN)
    passed = {key for key, _ in GIVEN} & recorder.metadata.keys()
    assert passed == ({key for key, _ in GIVEN} if method in FORWARDING else {"x-request-id"})
