"""Ids of chats that a user knows by a key of their own: nobody else can foresee one and take it.

They are UUIDs of version 8 (RFC 9562). Memory opens a chat under one only for the user and the key that it is made of.
"""

from __future__ import annotations

import uuid
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.runtime.auth.identity import Identity

_VERSION = 8


def find_keyed_chat(who: Identity, key: str) -> str:
    """Return the id of the chat that a user knows by this key."""
    # Lengths keep the parts apart: no user's name and key together are another's.
    told = b"".join(len(part.encode()).to_bytes(4) + part.encode() for part in (who.tenant, who.user, key))
    bits = int.from_bytes(sha256(b"headrace chat" + told).digest()[:16])
    bits = bits & ~(0xF << 76) | _VERSION << 76
    return str(uuid.UUID(int=bits & ~(0x3 << 62) | 0x2 << 62))


def is_keyed_chat(chat_id: str) -> bool:
    """Return whether an id, a UUID in its canonical form, is one of these."""
    return chat_id[14] == str(_VERSION)
