"""Facts about users as they are stored: one JSON object or list of them a line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from services.runtime.auth.identity import Identity
from services.runtime.clock import now_ms
from services.runtime.randomness import new_uuid

Scope: TypeAlias = Literal["user", "agent", "tenant"]


class Source(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    chat_id: str = ""
    run_id: str = ""
    n: int = 0

    @classmethod
    def create(cls, chat_id: str, run_id: str, n: int) -> Source:
        return cls(chat_id, run_id, n) if chat_id else NO_SOURCE


NO_SOURCE = Source()
"""The one source that is left out of a fact's line."""


class Fact(msgspec.Struct, frozen=True, tag_field="_type", tag="fact", rename="camel", omit_defaults=True):
    n: int = msgspec.field(name="_n")
    """Its place among the facts of all users, which it keeps; 0 before it is stored."""
    uuid: str
    request_id: str
    updated_at: int
    user: str = msgspec.field(name="_user")
    """Who stored it; also for a tenant's fact, which all users of the tenant see."""
    text: str
    tenant: str = msgspec.field(name="_tenant", default="")
    scope: Scope = "user"
    agent_key: str = ""
    topic: str = ""
    source: Source = NO_SOURCE
    created_at: int = 0
    """Unix milliseconds; 0 for a fact of the first version, which was never changed."""
    ended_at: int = 0
    replaced_by: str = ""
    deleted_at: int = 0
    """Unix milliseconds; not 0: a tombstone, without text, topic, source and vector."""
    vector: bytes = b""
    """32-bit floats, little-endian, of topic and text, of length 1; empty: there is none."""
    vector_model: str = ""
    """The model that made it, as provider/model."""

    @property
    def owner(self) -> Identity:
        return Identity.from_stored(self.tenant, self.user)

    @property
    def place(self) -> Identity:
        """Its owner; for a tenant's fact, a user without a name."""
        return Identity(self.owner.tenant, "") if self.scope == "tenant" else self.owner

    @property
    def key(self) -> str:
        """A key that is unique among a user's facts."""
        return self.request_id or self.uuid

    @property
    def is_valid(self) -> bool:
        return not (self.ended_at or self.deleted_at)


@dataclass(frozen=True, slots=True)
class FactChange:
    fact: Fact
    """The fact that was asked for, as it stands after the change."""
    changed: Sequence[Fact] = ()
    """What is to be stored: new facts have the number 0."""


MakeChange: TypeAlias = Callable[[Sequence[Fact]], FactChange]
"""Makes a change of the facts that a user sees, tombstones included; may be called again for the same change."""


def make_fact(owner: Identity, text: str, request_id: str) -> Fact:
    now = now_ms()
    return Fact(0, new_uuid(), request_id, now, owner.user, text, owner.tenant, created_at=now)


_LINE = msgspec.json.Decoder(Fact | list[Fact])


def encode_fact(fact: Fact) -> bytes:
    return msgspec.json.encode(fact) + b"\n"


def encode_facts(facts: Sequence[Fact]) -> bytes:
    """Encode facts that are stored together as one line, which a crash leaves whole or not at all."""
    return encode_fact(facts[0]) if len(facts) == 1 else msgspec.json.encode(facts) + b"\n"


def decode_facts(data: bytes) -> Iterable[Fact]:
    """Decode a line. Raises msgspec.DecodeError if it holds no facts."""
    found = _LINE.decode(data)
    return [found] if isinstance(found, Fact) else found
