"""Versions of agents."""

from __future__ import annotations

import hashlib

from headrace.v1 import memory_pb2
from tests.support.memory.writing import Memory


async def put(memory: Memory, definition: bytes, key: str = "a", *, is_shared: bool = True) -> int:
    request = memory_pb2.PutAgentVersionRequest(agent_key=key, is_shared=is_shared, definition=definition.decode())
    reply = await memory.stub.PutAgentVersion(request)
    assert reply.hash == hashlib.sha256(definition).hexdigest()
    return reply.version
