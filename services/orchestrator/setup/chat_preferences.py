"""A user's preferences for a whole chat, in a query's `params`: `{"persistentTools": ["grep"], "modelPref": "code"}`.

They hold for the runs of the user who said them. An empty list or text removes one. Other `params` are the caller's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import msgspec

from headrace.v1 import agent_pb2
from services.orchestrator.run.session_state import State

PERSISTENT_TOOLS_MAX = 100

USERS_MAX = 100
"""Users of a chat whose preferences are kept; a further one's go in the place of the oldest."""

FIELD = "preferences"


ModelPref = Literal["", "vision", "code"]


class Preferences(msgspec.Struct, rename="camel", omit_defaults=True):
    persistent_tools: list[str] | None = None
    model_pref: ModelPref | None = None


def apply_preferences(state: State, query: agent_pb2.QueryRequest, user: str, is_owner: bool) -> tuple[State, bytes]:
    """Return the state with what holds for a run of `user`, and FIELD where the query says something new, else b"".

    What a chat has had before users were told apart is its owner's.
    """
    by_user = state.read(FIELD, dict[str, Preferences], {})
    before = by_user.get(user)
    if before is None:
        before = Preferences()
        if is_owner:
            model = state.read("model_pref", str, "")
            before = Preferences(
                state.read("persistent_tools", list[str], []), model if model in ("vision", "code") else ""
            )
    said = _read(query)
    tools = before.persistent_tools if said.persistent_tools is None else said.persistent_tools[:PERSISTENT_TOOLS_MAX]
    held = Preferences(tools, before.model_pref if said.model_pref is None else said.model_pref)
    values = {
        "persistent_tools": msgspec.json.encode(tools or []),
        "model_pref": msgspec.json.encode(held.model_pref or ""),
    }
    changed = b""
    if said != Preferences():
        others = {name: theirs for name, theirs in by_user.items() if name != user}
        changed = msgspec.json.encode(dict([*others.items()][1 - USERS_MAX :]) | {user: held})
    return replace(state, values=state.values | values), changed


def _read(query: agent_pb2.QueryRequest) -> Preferences:
    try:
        return msgspec.json.decode(query.params or "{}", type=Preferences)
    except msgspec.DecodeError:
        return Preferences()  # params of another form are the caller's own
