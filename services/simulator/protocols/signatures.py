"""Signatures of thinking blocks, which must come back unchanged or not at all."""

from __future__ import annotations

import base64
import hashlib


def sign_thinking(thinking: str) -> str:
    """Return the only valid signature of this text."""
    return base64.b64encode(hashlib.sha256(b"headrace simulator\n" + thinking.encode()).digest()).decode()
