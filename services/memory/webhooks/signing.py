"""Signatures of Standard Webhooks (https://www.standardwebhooks.com, specification 1.0.0)."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Sequence

from services.runtime.randomness import new_hex

PREFIX = "whsec_"
KEY_BYTES = 32

VERSION = "v1,"
"""Before each signature; those of other versions are passed over."""

SIGNATURES_MAX = 16
"""Signatures of one request that are looked at."""


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


def is_signed(event_id: str, timestamp: str, body: bytes, signatures: str, secrets: Sequence[str]) -> bool:
    """Say whether one of the `signatures` (`v1,` and base64, with spaces between) is of one of the secrets.

    All that are given are compared, in constant time.
    """
    signed = b"%b.%b.%b" % (event_id.encode(), timestamp.encode(), body)
    given = [word[len(VERSION) :].encode() for word in signatures.split()[:SIGNATURES_MAX] if word.startswith(VERSION)]
    expected = [_sign(secret, signed).encode() for secret in secrets]
    return any([hmac.compare_digest(one, other) for one in expected for other in given])  # noqa: C419 - a generator would stop at the first


def _sign(secret: str, signed: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(PREFIX))
    return base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
