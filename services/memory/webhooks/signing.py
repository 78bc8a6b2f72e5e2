"""Signatures of Standard Webhooks (https://www.standardwebhooks.com, specification 1.0.0)."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable

from services.runtime.randomness import new_hex

PREFIX = "whsec_"
KEY_BYTES = 32


def make_secret() -> str:
    return PREFIX + base64.b64encode(bytes.fromhex(new_hex(KEY_BYTES))).decode()


def make_headers(event_id: str, now_s: int, body: bytes, secrets: Iterable[str]) -> dict[str, str]:
    """Return the headers that prove `body`, signed with each secret: a receiver has one of them."""
    signed = b"%b.%d.%b" % (event_id.encode(), now_s, body)
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(now_s),
        "webhook-signature": " ".join(f"v1,{_sign(secret, signed)}" for secret in secrets),
    }


def _sign(secret: str, signed: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(PREFIX))
    return base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
