"""Session state, ownership and end cursor of a chat."""

from __future__ import annotations

from typing import Any

import grpc
import orjson

from headrace.errors import NotFound
from headrace.v1 import memory_pb2, memory_pb2_grpc
from services.facade.peer_calls import call_peer

TIMEOUT_S = 5.0


class ChatStates:
    def __init__(self, memory: grpc.aio.Channel) -> None:
        # Any: the stubs' types know the RPCs of synchronous channels too.
        self._memory: Any = memory_pb2_grpc.MemoryServiceStub(memory)

    async def owns_chat(self, chat_id: str) -> bool:
        """Return whether the chat exists and belongs to the caller."""
        request = memory_pb2.GetChatRequest(chat_id=chat_id, without_events=True)
        try:
            reply = await call_peer(self._memory.GetChat, request, TIMEOUT_S)
        except NotFound:
            return False
        return reply.access == "own"

    async def find_end(self, chat_id: str) -> str:
        """Return the cursor after the chat's last event; empty if there is no such chat."""
        request = memory_pb2.GetChatRequest(chat_id=chat_id)
        try:
            reply = await call_peer(self._memory.GetChat, request, TIMEOUT_S)
        except NotFound:
            return ""
        return reply.cursor

    async def load_state(self, chat_id: str) -> dict[str, Any] | None:
        """Return a chat's state; None if there is no such chat or it is not the caller's."""
        request = memory_pb2.GetStateRequest(chat_id=chat_id)
        try:
            reply = await call_peer(self._memory.GetState, request, TIMEOUT_S)
        except NotFound:
            return None
        return orjson.loads(reply.state or "{}")
