"""subscriptions/listen: tells the client which of the chats that it names have news, until it leaves.

https://modelcontextprotocol.io/specification/2026-07-28. Earlier versions have resources/subscribe, whose notifications
want a stream of the whole session; sessions have no state here, so their clients read with a cursor now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import orjson

from headrace.v1 import agent_pb2
from services.facade.faces.followed_chats import FollowedChats
from services.facade.mcp_server.protocol import BAD_PARAMS, McpError, Message
from services.facade.mcp_server.resources import Resources
from services.facade.mcp_server.tool_call import encode_frame
from services.facade.responses.frame_writer import FrameWriter

META_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"

CHATS_MAX = 16
"""Chats of one subscription."""

PAUSE_S = 0.5
"""Least time between two notifications about a chat, which may stream."""


class Subscription:
    def __init__(self, followed: FollowedChats, message: Message, writer: FrameWriter) -> None:
        self._followed = followed
        self._message = message
        self._writer = writer

    async def tell_changes(self, resources: Resources, agent_keys: Collection[str]) -> None:
        """Acknowledge the chats, then tell of each whenever it has news, until the facade stops."""
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
        told = {"jsonrpc": "2.0", "method": f"notifications/{name}", "params": params}
        await self._writer.write_frame(encode_frame(orjson.dumps(told)))
