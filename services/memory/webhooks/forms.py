"""A delivery as a request: a CloudEvent with a signature, or A2A's status update to whoever follows one task.

A2A's form: https://a2a-protocol.org/latest/specification (1.0, 4.3.3); it has no signature, but what its receiver gave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from services.memory.storage.event_rows import RUN_ENDED
from services.memory.webhooks.signing import make_headers
from services.runtime.clock import now_ms

if TYPE_CHECKING:
    from services.memory.storage.records.webhooks import Delivery, Webhook

AGENT = {"user-agent": "headrace/1.0 (+webhooks)"}
CLOUD_EVENT = {"content-type": "application/cloudevents+json; charset=utf-8"}
JSON = {"content-type": "application/json"}

TOKEN = "x-a2a-notification-token"

_ENDED = {"completed": "COMPLETED", "cancelled": "CANCELED", "failed": "FAILED"}
"""A2A's words for how runs end; one whose gate has opened is INPUT_REQUIRED."""


class _EventData(msgspec.Struct, rename="camel"):
    chat_id: str
    run_id: str
    state: str = ""


class _CloudEvent(msgspec.Struct):
    type: str
    time: str
    data: _EventData


_DECODER = msgspec.json.Decoder(_CloudEvent)


def make_request(webhook: Webhook, delivery: Delivery) -> tuple[dict[str, str], bytes]:
    """Return headers and body of one try."""
    if webhook.run_id:
        return _make_a2a_headers(webhook, delivery), make_status_update(delivery.payload)
    body, now = delivery.payload.encode(), now_ms()
    return AGENT | CLOUD_EVENT | make_headers(delivery.event_id, now // 1000, body, webhook.list_keys(now)), body


def make_status_update(payload: str) -> bytes:
    """Return what an event of a run says, as a StreamResponse: ids and the state, nothing that was said."""
    event = _DECODER.decode(payload)
    word = _ENDED[event.data.state] if event.type == RUN_ENDED else "INPUT_REQUIRED"
    status = {"state": f"TASK_STATE_{word}", "timestamp": event.time}
    ids = {"taskId": event.data.run_id, "contextId": event.data.chat_id}
    return msgspec.json.encode({"statusUpdate": ids | {"status": status}})


def _make_a2a_headers(webhook: Webhook, delivery: Delivery) -> dict[str, str]:
    headers = AGENT | JSON | {"webhook-id": delivery.event_id}
    if webhook.token:
        headers[TOKEN] = webhook.token
    if webhook.auth_scheme:
        headers["authorization"] = f"{webhook.auth_scheme} {webhook.auth_credentials}".strip()
    return headers
