"""The text of API keys that are made here, and the names of all API keys in logs."""

from __future__ import annotations

import base64

from services.runtime.randomness import new_hex

PREFIX = "hrk_"
"""Begins each text, so that scanners of repositories find lost keys, and no other text is asked about."""

SECRET_BYTES = 32

KEYS_MAX = 100_000
"""Keys of all tenants together, which every service that takes keys has in memory."""

NAME_DIGITS = 12
"""Digits of a key's hash that name it in logs."""


def make_key_text() -> str:
    """Return a new random text; its hash needs no salt."""
    return PREFIX + base64.urlsafe_b64encode(bytes.fromhex(new_hex(SECRET_BYTES))).rstrip(b"=").decode()


def name_key(sha256: bytes) -> str:
    return f"api_key:{sha256.hex()[:NAME_DIGITS]}"
