"""Chats with published agents, and their files, as resources.

URIs are headrace://chats/{chatId}, …?cursor= for the events after a cursor, and …/files/{path}.
subscriptions/listen notifies the client when one of its chats has news.

https://modelcontextprotocol.io/specification/2026-07-28. Notifications of the earlier resources/subscribe need
a stream for the whole session. Sessions have no state here, so clients of earlier versions poll with a cursor.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Collection
from functools import partial
from typing import Any
from urllib.parse import unquote, urlencode

import grpc
import orjson

from headrace.chat_pages import read_chat
from headrace.errors import NotFound
from headrace.streams import reading
from headrace.v1 import agent_pb2, memory_pb2, memory_pb2_grpc, tools_pb2, tools_pb2_grpc
from services.facade.adapters.runs import FollowedChats
from services.facade.mcp_server.protocol import BAD_PARAMS, McpError, Message
from services.facade.mcp_server.run_view import RESOURCES
from services.facade.mcp_server.tool_call import encode_frame
from services.facade.peer_calls import UNARY_TIMEOUT_S, call_peer
from services.facade.responses.frame_writer import FrameWriter
from services.runtime.formats.chat_cursor import CURSOR, ChatCursor
from services.runtime.formats.json_form import encode
from services.runtime.rpc import call_ids

PAGE = 50

EVENTS_MAX = 2000
"""Maximum number of events in one read; the next read returns the rest."""

FILE_BYTES_MAX = 4 * 1024 * 1024
"""Maximum size of a file read as a resource; GET /api/resource serves larger ones."""

NOT_HERE = "no such chat with an agent that is published here, or no such file in it"

TEMPLATES = [
    {"uriTemplate": RESOURCES + "{chatId}", "name": "chat", "mimeType": "application/json"},
    {"uriTemplate": RESOURCES + "{chatId}?cursor={cursor}", "name": "news of a chat", "mimeType": "application/json"},
    {"uriTemplate": RESOURCES + "{chatId}/files/{+path}", "name": "file of a chat"},
]

_URI = re.compile(
    re.escape(RESOURCES) + rf"([0-9a-fA-F-]{{36}})(?:/files/(.{{1,4096}})|\?cursor=((?:{CURSOR})?))?",
    re.DOTALL,
)


class Resources:
    def __init__(self, memory: grpc.aio.Channel, tools: grpc.aio.Channel, followed: FollowedChats) -> None:
        # Any: the stubs' types know the RPCs of synchronous channels too.
        self._memory: Any = memory_pb2_grpc.MemoryServiceStub(memory)
        self._tools: Any = tools_pb2_grpc.ToolServiceStub(tools)
        self._followed = followed

    async def list_resources(self, agent_keys: Collection[str], cursor: Any) -> dict[str, Any]:
        """Return a page of the caller's own chats, newest first."""
        if not isinstance(cursor or "", str):
            raise McpError(BAD_PARAMS, "cursor: must be text")
        request = memory_pb2.ListChatsRequest(page_size=PAGE, page_token=cursor or "")
        reply = await call_peer(self._memory.ListChats, request)
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
        """Return the contents of a resource; `missing` is the error code if there is no such resource."""
        found = _URI.fullmatch(uri) if isinstance(uri, str) else None
        if found is None:
            text = f"uri: must be {RESOURCES}{{chatId}} or {RESOURCES}{{chatId}}/files/{{path}}"
            raise McpError(BAD_PARAMS, text, {"uri": uri} if isinstance(uri, str) else None)
        try:
            chat = await self._get_chat(found[1], agent_keys)
            if found[3] is not None:
                news = await self._read_news(chat, found[3], agent_keys)
                return {"contents": [{"uri": uri, "mimeType": "application/json", "text": news}]}
            if found[2] is None:
                text = encode(chat).decode()
                return {"contents": [{"uri": uri, "mimeType": "application/json", "text": text}]}
            return {"contents": [{"uri": uri} | await self._read_file(found[1], unquote(found[2]))]}
        except NotFound:
            raise McpError(missing, NOT_HERE, {"uri": uri}) from None

    async def find_place(self, agent_keys: Collection[str], uri: Any) -> tuple[str, str]:
        """Return the id of the chat in a URI and its current end cursor; McpError if there is no such chat."""
        found = _URI.fullmatch(uri) if isinstance(uri, str) else None
        if found is None or found[2] is not None:
            raise McpError(BAD_PARAMS, f"resourceSubscriptions: must be chats, such as {RESOURCES}{{chatId}}")
        try:
            return found[1], (await self._get_chat(found[1], agent_keys)).cursor
        except NotFound:
            raise McpError(BAD_PARAMS, NOT_HERE, {"uri": uri}) from None

    async def _read_news(self, chat: memory_pb2.GetChatResponse, cursor: str, agent_keys: Collection[str]) -> str:
        """Return the chat's events after the cursor as JSON, in the form of AgentService.Follow, and the next
        cursor.
        """
        events, end = list[bytes](), ChatCursor.read(chat.cursor)

        async def take(followed: agent_pb2.FollowDelta) -> bool:
            nonlocal cursor
            events.append(encode(followed))
            cursor = followed.cursor
            return ChatCursor.read(cursor) < end and len(events) < EVENTS_MAX

        if ChatCursor.read(cursor) < end:
            async with asyncio.timeout(UNARY_TIMEOUT_S):
                await self._followed.follow(chat.chat_id, cursor, agent_keys, take)
        return f'{{"events":[{b",".join(events).decode()}],"cursor":"{cursor}"}}'

    async def _get_chat(self, chat_id: str, agent_keys: Collection[str]) -> memory_pb2.GetChatResponse:
        chat = await read_chat(partial(call_peer, self._memory.GetChat), chat_id)
        runs = {event.run_start.agent_key for event in chat.events if event.HasField("run_start")}
        if not runs or not runs <= set(agent_keys):
            raise NotFound(NOT_HERE)
        return chat

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


META_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"

CHATS_MAX = 16
"""Maximum number of chats in one subscription."""

PAUSE_S = 0.5
"""Minimum time between two notifications about a chat, which may be streaming."""


class Subscription:
    def __init__(self, followed: FollowedChats, message: Message, writer: FrameWriter) -> None:
        self._followed = followed
        self._message = message
        self._writer = writer

    async def tell_changes(self, resources: Resources, agent_keys: Collection[str]) -> None:
        """Acknowledge the chats, then notify the client of news in each until the facade stops."""
        wanted = self._message.params.get("notifications")
        uris: Any = wanted.get("resourceSubscriptions", []) if isinstance(wanted, dict) else None
        if not isinstance(uris, list) or len(uris) > CHATS_MAX:
            text = f"notifications: must be an object, with at most {CHATS_MAX} resourceSubscriptions"
            raise McpError(BAD_PARAMS, text)
        chats = {uri: await resources.find_place(agent_keys, uri) for uri in uris}
        await self._send("subscriptions/acknowledged", notifications={"resourceSubscriptions": [*chats]})
        try:
            async with asyncio.TaskGroup() as group:
                for uri, (chat_id, cursor) in chats.items():
                    group.create_task(self._follow(uri, chat_id, cursor, agent_keys))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def _follow(self, uri: str, chat_id: str, cursor: str, agent_keys: Collection[str]) -> None:
        has_news = asyncio.Event()

        async def take(_: agent_pb2.FollowDelta) -> bool:
            has_news.set()
            return True

        telling = asyncio.create_task(self._tell(uri, has_news))
        try:
            await self._followed.follow(chat_id, cursor, agent_keys, take)
        finally:
            telling.cancel()

    async def _tell(self, uri: str, has_news: asyncio.Event) -> None:
        while await has_news.wait():
            has_news.clear()
            await self._send("resources/updated", uri=uri)
            await asyncio.sleep(PAUSE_S)

    async def _send(self, name: str, **params: Any) -> None:
        params["_meta"] = {META_SUBSCRIPTION: self._message.id}
        notification = {"jsonrpc": "2.0", "method": f"notifications/{name}", "params": params}
        await self._writer.write_frame(encode_frame(orjson.dumps(notification)))
