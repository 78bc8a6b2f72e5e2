"""A delivery as a request: a signed CloudEvent, or A2A's status update for the client that follows one task.

Signatures follow Standard Webhooks (https://www.standardwebhooks.com, specification 1.0.0). A2A's format:
https://a2a-protocol.org/latest/specification (1.0, 4.3.3); it is not signed, but carries the credentials that its
receiver supplied.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from services.memory.storage.event_rows import RUN_ENDED
from services.runtime.clock import now_ms
from services.runtime.randomness import new_hex

if TYPE_CHECKING:
    from services.memory.storage.records.webhooks import Delivery, Webhook

PREFIX = "whsec_"
KEY_BYTES = 32

VERSION = "v1,"
"""Prefix of each signature; other versions are ignored."""

SIGNATURES_MAX = 16
"""Maximum signatures of a request that are checked."""


def make_secret() -> str:
    return PREFIX + base64.b64encode(bytes.fromhex(new_hex(KEY_BYTES))).decode()


def make_headers(event_id: str, now_s: int, body: bytes, secrets: Iterable[str]) -> dict[str, str]:
    """Return the headers that authenticate `body`, signed with each secret; a receiver knows one of them."""
    signed = b"%b.%d.%b" % (event_id.encode(), now_s, body)
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(now_s),
        "webhook-signature": " ".join(f"v1,{_sign(secret, signed)}" for secret in secrets),
    }


def is_signed(event_id: str, timestamp: str, body: bytes, signatures: str, secrets: Sequence[str]) -> bool:
    """Return whether one of the `signatures` (`v1,` and base64, separated by spaces) matches one of the secrets.

    All of them are compared, in constant time.
    """
    signed = b"%b.%b.%b" % (event_id.encode(), timestamp.encode(), body)
    given = [word[len(VERSION) :].encode() for word in signatures.split()[:SIGNATURES_MAX] if word.startswith(VERSION)]
    expected = [_sign(secret, signed).encode() for secret in secrets]
    return any([hmac.compare_digest(one, other) for one in expected for other in given])  # noqa: C419 - a generator would stop at the first


def _sign(secret: str, signed: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(PREFIX))
    return base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


AGENT = {"user-agent": "headrace/1.0 (+webhooks)"}
CLOUD_EVENT = {"content-type": "application/cloudevents+json; charset=utf-8"}
JSON = {"content-type": "application/json"}

TOKEN = "x-a2a-notification-token"

_ENDED = {"completed": "COMPLETED", "cancelled": "CANCELED", "failed": "FAILED"}
"""A2A's states of ended runs; a run with an open gate is INPUT_REQUIRED."""


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
    """Return headers and body of one attempt."""
    if webhook.run_id:
        return _make_a2a_headers(webhook, delivery), make_status_update(delivery.payload)
    body, now = delivery.payload.encode(), now_ms()
    return AGENT | CLOUD_EVENT | make_headers(delivery.event_id, now // 1000, body, webhook.list_keys(now)), body


def make_status_update(payload: str) -> bytes:
    """Return a run's event as a StreamResponse: ids and the state, without content."""
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
