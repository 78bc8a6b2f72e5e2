"""Agent cards."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from headrace.v1 import agent_pb2
from services.facade.a2a.protocol import VERSION

CURSOR = "urn:headrace:cursor:1"
"""The extension: ids of streamed events are cursors, and a subscription with Last-Event-ID goes on behind one."""

MODES = ["text/plain", "application/json"]


def build_card(agent: agent_pb2.Agent, url: str) -> dict[str, Any]:
    """Return the card of an agent whose JSON-RPC is at `url`, below which HTTP+JSON has its paths."""
    bindings = ("JSONRPC", "HTTP+JSON")
    skill: dict[str, Any] = {
        "id": agent.key,
        "name": agent.name,
        "description": agent.description or agent.name,
        "tags": [agent.mode.lower()],
        "examples": [*agent.questions],
    }
    extension = {"uri": CURSOR, "description": "Event ids are cursors; SubscribeToTask takes one as Last-Event-ID."}
    return {
        "name": agent.name,
        "description": agent.description or agent.name,
        "version": version("headrace"),
        "supportedInterfaces": [
            {"url": url, "protocolBinding": binding, "protocolVersion": VERSION} for binding in bindings
        ],
        "capabilities": {"streaming": True, "pushNotifications": False, "extensions": [extension]},
        "securitySchemes": {
            "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
            "apiKey": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
        },
        "defaultInputModes": MODES,
        "defaultOutputModes": MODES,
        "skills": [skill],
    }
