"""Webhooks and their deliveries in the database, written by the statement that stores their lines."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import orjson

from services.memory.storage.postgres.connection.session import strip_nul
from services.memory.storage.records.deliveries import (
    DELIVERY_FIELDS,
    EVENT_FIELDS,
    LIVE,
    MATCHES,
    list_values,
)

if TYPE_CHECKING:
    from services.memory.storage.event_rows import EventChange

NEXT_PLACE = "nextval('delivery_places')"

_COUNTED = frozenset({"occurred_at", "began_at", "next_at"})

_TYPES = ", ".join(f"{name} {'bigint' if name in _COUNTED else 'text'}" for name in EVENT_FIELDS)

_STORE = f"""
, delivery AS (
    INSERT INTO deliveries ({DELIVERY_FIELDS})
    SELECT w.webhook_id, {NEXT_PLACE}, {", ".join(f"event.{name}" for name in EVENT_FIELDS)}, 0, 0, 0, ''
    FROM chat, jsonb_to_recordset(%s::text::jsonb) AS event(ordinal bigint, as_of bigint, {_TYPES})
        JOIN webhooks AS w ON {MATCHES}
    ORDER BY event.ordinal
    ON CONFLICT DO NOTHING RETURNING state
), withdrawn AS (
    DELETE FROM deliveries USING chat, jsonb_to_recordset(%s::text::jsonb) AS closed(run_id text, gate_id text)
    WHERE deliveries.run_id = closed.run_id AND deliveries.gate_id = coalesce(closed.gate_id, deliveries.gate_id)
        AND deliveries.state = 'scheduled' AND deliveries.tenant = $25
)
"""

ANSWER = "SELECT version, (SELECT count(*) FROM delivery) FROM chat"


@cache
def make_part(first: int) -> str:
    """Return the part of the statement that stores a chat's lines; its values' marks begin with `first`."""
    return _STORE % (f"${first}", f"${first + 1}")


def encode_change(change: EventChange) -> tuple[str, str]:
    """Return the values of the two marks."""
    events = [
        {"ordinal": n, "as_of": LIVE} | dict(zip(EVENT_FIELDS, map(strip_nul, list_values(event)), strict=True))
        for n, event in enumerate(change.events)
    ]
    withdrawn = [{"run_id": run_id, "gate_id": strip_nul(gate_id)} for run_id, gate_id in change.withdrawn]
    return orjson.dumps(events).decode(), orjson.dumps(withdrawn).decode()
