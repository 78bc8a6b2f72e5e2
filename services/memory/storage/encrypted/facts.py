"""Facts whose texts, topics and vectors stand in columns of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from services.memory.encryption.envelope import WrongCiphertext, is_encrypted
from services.memory.encryption.keyring import make_damaged_error

if TYPE_CHECKING:
    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.records.user_facts import Fact


def encrypt_fact(fact: Fact, keys: Keyring) -> Fact:
    """Return a fact as its row is to stand; the tenant's key is to be ready."""
    if not keys.encrypts:
        return fact
    tenant = fact.owner.tenant
    vector = keys.encrypt(tenant, _name_part(fact, b"vector"), fact.vector) if fact.vector else b""
    text, topic = (
        keys.encrypt_text(tenant, _name_part(fact, name), part)
        for name, part in ((b"text", fact.text), (b"topic", fact.topic))
    )
    return replace(fact, text=text, topic=topic, vector=vector)


def decrypt_fact(fact: Fact, keys: Keyring) -> Fact:
    """Raises LogDamaged, KeyUnavailable, Overloaded."""
    text = keys.decrypt_text(_name_part(fact, b"text"), fact.text)
    topic = keys.decrypt_text(_name_part(fact, b"topic"), fact.topic)
    vector = fact.vector
    if is_encrypted(vector):
        context = _name_part(fact, b"vector")
        try:
            vector = keys.decrypt(context, vector)
        except WrongCiphertext as error:
            raise make_damaged_error(context) from error
    if text is fact.text and topic is fact.topic and vector is fact.vector:
        return fact
    return replace(fact, text=text, topic=topic, vector=vector)


def _name_part(fact: Fact, part: bytes) -> bytes:
    return b"fact\0%b\0%b" % (fact.uuid.encode(), part)
