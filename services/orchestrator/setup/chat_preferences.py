"""Preferences for the whole chat, in a query's `params`: `{"persistentTools": ["grep"], "modelPref": "code"}`.

An empty list or text removes one. Other `params` are the caller's own.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.v1 import agent_pb2

PERSISTENT_TOOLS_MAX = 100


class _ChatPreferences(msgspec.Struct, rename="camel"):
    persistent_tools: list[str] | None = None
    model_pref: Literal["", "vision", "code"] | None = None


def read_preferences(query: agent_pb2.QueryRequest) -> dict[str, bytes]:
    try:
        wishes = msgspec.json.decode(query.params or "{}", type=_ChatPreferences)
    except msgspec.DecodeError:
        return {}  # params of another form are the caller's own
    fields: dict[str, bytes] = {}
    if wishes.persistent_tools is not None:
        fields["persistent_tools"] = msgspec.json.encode(wishes.persistent_tools[:PERSISTENT_TOOLS_MAX])
    if wishes.model_pref is not None:
        fields["model_pref"] = msgspec.json.encode(wishes.model_pref)
    return fields
