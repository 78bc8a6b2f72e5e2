"""The RPCs of keys."""

from __future__ import annotations

from typing import Any

from headrace.streams import rpc_errors
from headrace.v1 import keys_pb2
from tests.support.memory.writing import Memory


async def call(memory: Memory, name: str, /, **fields: Any) -> Any:
    request = getattr(keys_pb2, f"{name}Request")(**fields)
    with rpc_errors():
        return await getattr(memory.keys, name)(request)
