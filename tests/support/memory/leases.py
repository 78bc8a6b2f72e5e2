"""Runs and their owners."""

from __future__ import annotations

from headrace.streams import rpc_errors
from headrace.v1 import memory_pb2
from tests.support.memory.writing import Memory, new_id, query_line

A, B = "127.0.0.1:7001", "127.0.0.1:7011"


class Clock:
    """A clock that is told what time it is."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


def query(chat_id: str, owner: str, *beside: str, request_id: str = "") -> memory_pb2.AppendRequest:
    return memory_pb2.AppendRequest(
        chat_id=chat_id,
        run_id=new_id(),
        request_id=new_id(),
        lines=[query_line(request_id=request_id)],
        owner=owner,
        ttl_ms=15_000,
        beside=beside,
    )


async def begin(memory: Memory, request: memory_pb2.AppendRequest) -> memory_pb2.AppendResponse:
    with rpc_errors():
        return await memory.stub.Append(request)


async def list_run_ids(memory: Memory, **fields: object) -> list[str]:
    request = memory_pb2.ListUnfinishedRunsRequest(**fields)  # pyright: ignore[reportArgumentType] - each is of its field
    return [run.run_id for run in (await memory.stub.ListUnfinishedRuns(request)).runs]
