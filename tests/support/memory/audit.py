"""Lines of the audit log."""

from __future__ import annotations

import json
from typing import Any

from headrace.streams import rpc_errors
from headrace.v1 import audit_pb2
from services.runtime.auth.identity import ALL_SCOPES, Identity
from tests.support.memory.writing import Memory

ADA = Identity("acme", "ada", "api_key:ada", scopes=ALL_SCOPES)


async def call(memory: Memory, name: str, /, **fields: Any) -> Any:
    with rpc_errors():
        return await getattr(memory.audit, name)(getattr(audit_pb2, f"{name}Request")(**fields))


async def make_deeds(memory: Memory, count: int = 4) -> None:
    for index in range(count):
        await call(memory, "RecordAudit", event="key.made", tenant="acme", details=json.dumps({"keyId": str(index)}))
