"""The RPCs of webhooks."""

from __future__ import annotations

from typing import Any

from headrace.streams import rpc_errors
from headrace.v1 import webhook_pb2
from services.runtime.auth.identity import ALL_SCOPES, Identity
from tests.support.memory.writing import Memory

ADA, EVE = Identity("acme", "ada", scopes=ALL_SCOPES), Identity("globex", "eve", scopes=ALL_SCOPES)


URL = "https://hooks.example/in"


async def call(memory: Memory, name: str, /, **fields: Any) -> Any:
    request = getattr(webhook_pb2, f"{name}Request")(**fields)
    with rpc_errors():
        return await getattr(memory.webhooks, name)(request)
