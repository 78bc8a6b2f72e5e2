"""Facts about users, one JSON object a line, and their form in the index."""

from __future__ import annotations

import time
import uuid

import msgspec

from services.memory.storage.index_rows import Text
from services.runtime.auth.identity import Identity


class Fact(msgspec.Struct, frozen=True, tag_field="_type", tag="fact", rename="camel"):
    n: int = msgspec.field(name="_n")
    uuid: str
    request_id: str
    updated_at: int
    user: str = msgspec.field(name="_user")
    text: str
    tenant: str = msgspec.field(name="_tenant", default="")

    @classmethod
    def create(cls, owner: Identity, text: str, request_id: str) -> Fact:
        now_ms = time.time_ns() // 1_000_000
        return cls(0, str(uuid.uuid4()), request_id, now_ms, owner.user, text, owner.tenant)

    @property
    def owner(self) -> Identity:
        return Identity.from_stored(self.tenant, self.user)

    @property
    def key(self) -> str:
        """A key that is unique among a user's facts."""
        return self.request_id or self.uuid


_FACT = msgspec.json.Decoder(Fact)


def encode_fact(fact: Fact) -> bytes:
    return msgspec.json.encode(fact) + b"\n"


def decode_fact(data: bytes) -> Fact:
    """Decode a line. Raises msgspec.DecodeError if it is no fact."""
    return _FACT.decode(data)


def make_fact_text(fact: Fact) -> tuple[Identity, Text]:
    return fact.owner, Text(fact.n, "", "fact", fact.text)
