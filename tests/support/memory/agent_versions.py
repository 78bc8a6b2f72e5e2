"""Versions of agents."""

import hashlib

from tests.support.memory.writing import Memory


async def put_version(memory: Memory, definition: bytes, key: str = "a", *, is_shared: bool = True) -> int:
    reply = await memory.call("PutAgentVersion", agent_key=key, is_shared=is_shared, definition=definition.decode())
    assert reply.hash == hashlib.sha256(definition).hexdigest()
    return reply.version
