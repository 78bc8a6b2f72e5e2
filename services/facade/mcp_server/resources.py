"""Chats with published agents, and their files, as resources: headrace://chats/{chatId} and …/files/{path}."""

from __future__ import annotations

import base64
import re
from collections.abc import Collection
from typing import Any
from urllib.parse import unquote, urlencode

import grpc

from headrace.calls.chat_pages import read_chat
from headrace.errors import NotFound
from headrace.streams import reading, rpc_errors
from headrace.v1 import memory_pb2, memory_pb2_grpc, tools_pb2, tools_pb2_grpc
from services.facade.mcp_server.protocol import BAD_PARAMS, McpError
from services.facade.mcp_server.run_view import RESOURCES
from services.runtime.formats.json_form import encode
from services.runtime.rpc import call_ids

UNARY_TIMEOUT_S = 30.0

PAGE = 50

FILE_BYTES_MAX = 4 * 1024 * 1024
"""Largest file that is read whole; larger ones are at GET /api/resource."""

NOT_HERE = "no such chat with an agent that is published here, or no such file in it"

TEMPLATES = [
    {"uriTemplate": RESOURCES + "{chatId}", "name": "chat", "mimeType": "application/json"},
    {"uriTemplate": RESOURCES + "{chatId}/files/{+path}", "name": "file of a chat"},
]

_URI = re.compile(re.escape(RESOURCES) + r"([0-9a-fA-F-]{36})(?:/files/(.{1,4096}))?", re.DOTALL)


class Resources:
    def __init__(self, memory: grpc.aio.Channel, tools: grpc.aio.Channel) -> None:
        # Any: the stubs' types know the RPCs of synchronous channels too.
        self._memory: Any = memory_pb2_grpc.MemoryServiceStub(memory)
        self._tools: Any = tools_pb2_grpc.ToolServiceStub(tools)

    async def list_resources(self, agent_keys: Collection[str], cursor: Any) -> dict[str, Any]:
        """Return a page of the caller's own chats, the newest first."""
        if not isinstance(cursor or "", str):
            raise McpError(BAD_PARAMS, "cursor: must be text")
        request = memory_pb2.ListChatsRequest(page_size=PAGE, page_token=cursor or "")
        with rpc_errors():
            reply = await self._memory.ListChats(request, timeout=UNARY_TIMEOUT_S, metadata=call_ids.forward_metadata())
        found = [
            {
                "uri": RESOURCES + chat.chat_id,
                "name": chat.chat_name or chat.chat_id,
                "title": chat.title or chat.chat_name,
                "description": f"A chat with {chat.first_agent_key}",
                "mimeType": "application/json",
            }
            for chat in reply.chats
            if chat.first_agent_key in agent_keys
        ]
        return {"resources": found} | ({"nextCursor": reply.next_page_token} if reply.next_page_token else {})

    async def read_resource(self, agent_keys: Collection[str], uri: Any, missing: int) -> dict[str, Any]:
        """Return the contents of a resource; `missing` is the code for one that is not there."""
        found = _URI.fullmatch(uri) if isinstance(uri, str) else None
        if found is None:
            text = f"uri: must be {RESOURCES}{{chatId}} or {RESOURCES}{{chatId}}/files/{{path}}"
            raise McpError(BAD_PARAMS, text, {"uri": uri} if isinstance(uri, str) else None)
        try:
            chat = await read_chat(self._get_page, found[1])
            runs = {event.run_start.agent_key for event in chat.events if event.HasField("run_start")}
            if not runs or not runs <= set(agent_keys):
                raise NotFound(NOT_HERE)
            if found[2] is None:
                text = encode(chat).decode()
                return {"contents": [{"uri": uri, "mimeType": "application/json", "text": text}]}
            return {"contents": [{"uri": uri} | await self._read_file(found[1], unquote(found[2]))]}
        except NotFound:
            raise McpError(missing, NOT_HERE, {"uri": uri}) from None

    async def _get_page(self, request: memory_pb2.GetChatRequest) -> memory_pb2.GetChatResponse:
        with rpc_errors():
            return await self._memory.GetChat(request, timeout=UNARY_TIMEOUT_S, metadata=call_ids.forward_metadata())

    async def _read_file(self, chat_id: str, path: str) -> dict[str, Any]:
        request = tools_pb2.ReadFileRequest(chat_id=chat_id, path=path)
        call = self._tools.ReadFile(request, metadata=call_ids.forward_metadata())
        mime_type, data = "", bytearray()
        async with reading(call) as pieces:
            async for piece in pieces:
                mime_type = piece.info.mime_type or mime_type
                data += piece.data
                if max(len(data), piece.info.size_bytes) > FILE_BYTES_MAX:
                    where = f"GET /api/resource?{urlencode({'chatId': chat_id, 'path': path})}"
                    raise McpError(BAD_PARAMS, f"the file is larger than {FILE_BYTES_MAX} bytes; read it by {where}")
        if mime_type.startswith("text/") or mime_type.startswith("application/json"):
            return {"mimeType": mime_type, "text": data.decode(errors="replace")}
        return {"mimeType": mime_type, "blob": base64.b64encode(data).decode()}
