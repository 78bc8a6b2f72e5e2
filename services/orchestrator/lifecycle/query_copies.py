"""Copies of a query, in which every field is copied or named as left out."""

from __future__ import annotations

import hashlib

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2
from services.runtime.auth.access import find_keyed_chat
from services.runtime.auth.identity import require_identity

STEER_FIELDS = frozenset({"chat_id", "agent_key", "deep_think", "trial"})

STEER_OWN_FIELDS = frozenset({"request_id", "role", "message"})

STEER_LEFT_OUT = frozenset(
    {"references", "params", "scene", "stream", "on_disconnect", "when_busy"}
    | {"client_tools", "output_format", "tool_choice", "parallel_tool_calls"}
    | {"history", "progress", "record", "agent_version", "from_program", "chat_key"}
)


def query_event(query: agent_pb2.QueryRequest, user: str) -> agent_pb2.RequestQuery:
    fields = agent_pb2.RequestQuery.DESCRIPTOR.fields_by_name
    copied = {field.name: value for field, value in query.ListFields() if field.name in fields}
    return agent_pb2.RequestQuery(**copied, by=user)


def steer_query(query: agent_pb2.QueryRequest, request_id: str, text: str) -> agent_pb2.QueryRequest:
    """Make the query that asks an unheard message, the same one each time."""
    name = hashlib.sha256(request_id.encode()).hexdigest()[:32]
    fields = {field.name: value for field, value in query.ListFields() if field.name in STEER_FIELDS}
    return agent_pb2.QueryRequest(request_id=f"steer_{name}", role="user", message=text, **fields)


def find_chat(query: agent_pb2.QueryRequest) -> agent_pb2.QueryRequest:
    """Return the query with the id of the chat that its chat_key names; itself where it has none.

    Raises:
        InvalidRequest: It is the key of another chat than chat_id.
    """
    if not query.HasField("chat_key"):
        return query
    keyed = find_keyed_chat(require_identity(), query.chat_key)
    if query.chat_id not in ("", keyed):
        raise InvalidRequest.of("chatKey", "is the key of another chat than chatId")
    copy = agent_pb2.QueryRequest()
    copy.CopyFrom(query)
    copy.chat_id = keyed
    return copy
