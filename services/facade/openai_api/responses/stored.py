"""Stored responses: listing of input items, and deletion."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import orjson
from aiohttp import web

from headrace.errors import InvalidRequest, NotFound
from headrace.v1 import agent_pb2, agent_pb2_grpc, memory_pb2, memory_pb2_grpc
from services.facade.openai_api.responses.request import parse_response_id
from services.facade.peer_calls import call_peer

ITEMS_DEFAULT, ITEMS_MAX = 20, 100
"""Page size of input items, as in OpenAI's API (2026-05)."""


class StoredResponses:
    """Serves runs in the chats' logs as stored responses."""

    def __init__(self, orchestrator: grpc.aio.Channel, memory: grpc.aio.Channel) -> None:
        # Any: the stubs' types know the RPCs of synchronous channels too.
        self._agents: Any = agent_pb2_grpc.AgentServiceStub(orchestrator)
        self._memory: Any = memory_pb2_grpc.MemoryServiceStub(memory)

    async def list_input_items(self, request: web.Request) -> web.StreamResponse:
        """Answer with a page of the run's input items, last first unless `order` is asc."""
        run_id = parse_response_id(request.match_info["id"])
        asked = memory_pb2.GetChatRequest(run_id=run_id, include_lines=True)
        chat = await call_peer(self._memory.GetChat, asked)
        query = next((line.query.query for line in chat.lines if line.HasField("query")), None)
        if query is None:
            raise NotFound(f"there is no response of run {run_id}", runId=run_id)
        items = list(_build_items(query, uuid.UUID(run_id).hex))
        return _answer(_build_page(items, request.query))

    async def delete_response(self, request: web.Request) -> web.StreamResponse:
        """Delete a response together with its chat, if it is the chat's only one.

        Raises:
            InvalidRequest: The chat has other responses.
            ChatBusy: The run has not ended.
        """
        run_id = parse_response_id(request.match_info["id"])
        reply = await call_peer(self._agents.GetRun, agent_pb2.GetRunRequest(run_id=run_id))
        chat_id = reply.run.chat_id
        listed = await call_peer(self._agents.ListRuns, agent_pb2.ListRunsRequest(chat_id=chat_id, page_size=1))
        if listed.runs_total > 1:
            rule = f"must be the only response of its chat, which has {listed.runs_total}; DELETE /api/chat takes all"
            raise InvalidRequest.of("response_id", rule)
        await call_peer(self._memory.DeleteChat, memory_pb2.DeleteChatRequest(chat_id=chat_id))
        return _answer({"id": request.match_info["id"], "object": "response", "deleted": True})


def _build_items(query: agent_pb2.QueryRequest, run: str) -> Iterator[dict[str, Any]]:
    """Yield a query's messages as items with numbered ids."""
    asked = agent_pb2.EarlierMessage(role="user", content=query.message)
    number = 0
    for message in (*query.history, asked, *query.progress):
        for kind, item in _build_message_items(message):
            yield {"id": f"{kind}_{run}_{number}", "status": "completed"} | item
            number += 1


def _build_message_items(message: agent_pb2.EarlierMessage) -> Iterator[tuple[str, dict[str, Any]]]:
    if message.role == "tool":
        yield "fco", {"type": "function_call_output", "call_id": message.tool_call_id, "output": message.content}
    elif message.role != "assistant":
        part = {"type": "input_text", "text": message.content}
        yield "msg", {"type": "message", "role": message.role, "content": [part]}
    elif message.content:
        part = {"type": "output_text", "text": message.content, "annotations": [], "logprobs": []}
        yield "msg", {"type": "message", "role": "assistant", "content": [part]}
    for call in message.tool_calls:
        fields = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        yield "fc", {"type": "function_call"} | fields


def _build_page(items: Sequence[dict[str, Any]], query: Any) -> dict[str, Any]:
    order, limit, after = query.get("order", "desc"), query.get("limit", str(ITEMS_DEFAULT)), query.get("after")
    if order not in ("asc", "desc"):
        raise InvalidRequest.of("order", "must be asc or desc")
    if not (limit.isascii() and limit.isdigit() and len(limit) <= 4 and 1 <= int(limit) <= ITEMS_MAX):
        raise InvalidRequest.of("limit", f"must be a whole number from 1 to {ITEMS_MAX}")
    ordered = items if order == "asc" else items[::-1]
    first = 0
    if after is not None:
        ids = [item["id"] for item in ordered]
        if after not in ids:
            raise InvalidRequest.of("after", "must be the id of an item of this response")
        first = ids.index(after) + 1
    page = ordered[first : first + int(limit)]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": first + len(page) < len(ordered),
    }


def _answer(value: dict[str, Any]) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json", charset="utf-8")
