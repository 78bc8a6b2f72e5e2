"""The fields that every line of a log has."""

from __future__ import annotations

from typing import Any

from services.runtime.auth import identity
from services.runtime.randomness import new_uuid


def make_stamp(chat_id: str, run_id: str = "", generation: int = 0, *, request_id: str = "") -> dict[str, Any]:
    """Make the fields that every line has; an empty request id becomes a new one."""
    writer = identity.require_identity()
    return {
        "n": 0,
        "uuid": request_id or new_uuid(),
        "chat_id": chat_id,
        "run_id": run_id,
        "updated_at": 0,
        "tenant": writer.tenant,
        "user": writer.user,
        "generation": generation,
    }
