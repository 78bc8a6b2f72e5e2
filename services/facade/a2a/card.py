"""Agent cards."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from headrace.v1 import agent_pb2
from services.facade.a2a.protocol import CURSOR, VERSION

MODES = ["text/plain", "application/json"]

FILE_MODES = ["image/png", "image/jpeg", "image/gif", "image/webp", "audio/wav", "audio/mpeg", "application/pdf"]
"""What models can be shown; any other file is one of the chat's."""


def build_card(agent: agent_pb2.Agent, url: str, grpc_address: str = "") -> dict[str, Any]:
    """Return the card of an agent whose JSON-RPC is at `url`, below which HTTP+JSON has its paths; its gRPC is at
    `grpc_address`, where all agents are, each by its key as `tenant`.
    """
    interfaces: list[dict[str, Any]] = [
        {"url": url, "protocolBinding": binding, "protocolVersion": VERSION} for binding in ("JSONRPC", "HTTP+JSON")
    ]
    if grpc_address:
        served = {"url": grpc_address, "protocolBinding": "GRPC", "tenant": agent.key, "protocolVersion": VERSION}
        interfaces.append(served)
    skill: dict[str, Any] = {
        "id": agent.key,
        "name": agent.name,
        "description": agent.description or agent.name,
        "tags": [agent.mode.lower()],
        "examples": [*agent.questions],
    }
    extension = {
        "uri": CURSOR,
        "description": "Events have cursors; SubscribeToTask takes one as Last-Event-ID, as does SubscribeToContext.",
    }
    return {
        "name": agent.name,
        "description": agent.description or agent.name,
        "version": version("headrace"),
        "supportedInterfaces": interfaces,
        "capabilities": {"streaming": True, "pushNotifications": True, "extensions": [extension]},
        "securitySchemes": {
            "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
            "apiKey": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
        },
        "defaultInputModes": [*MODES, *FILE_MODES],
        "defaultOutputModes": MODES,
        "skills": [skill],
    }
