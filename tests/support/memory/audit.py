"""Lines of the audit log."""

import json

from services.runtime.auth.identity import ALL_SCOPES, Identity
from tests.support.memory.writing import Memory

ADA = Identity("acme", "ada", "api_key:ada", scopes=ALL_SCOPES)


async def add_audit_lines(memory: Memory, count: int = 4) -> None:
    for index in range(count):
        await memory.call("RecordAudit", event="key.made", tenant="acme", details=json.dumps({"keyId": str(index)}))
