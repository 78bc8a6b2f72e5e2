"""Texts in the rows of chats: names and titles, searched texts, gates' reasons and grants.

Ids, states, times, users, tools and sums stay in plain text, because rows are found by them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.gates.rows import GateEntry, GrantEntry
    from services.memory.storage.index_rows import ChatEntry, IndexChange


class RowCipher:
    """May be used in any thread; decryption succeeds only for the same place in the same row."""

    def __init__(self, keys: Keyring) -> None:
        self.keys = keys

    def encrypt_change(self, change: IndexChange) -> IndexChange:
        """Return a change with its texts encrypted; load the tenant's key first if this must not block."""
        if not self.keys.encrypts:
            return change
        chat, tenant, encrypt = change.chat, change.chat.tenant, self.keys.encrypt_text
        return replace(
            change,
            chat=replace(
                chat,
                name=encrypt(tenant, _name_chat_part(chat.chat_id, b"name"), chat.name),
                title=encrypt(tenant, _name_chat_part(chat.chat_id, b"title"), chat.title),
            ),
            texts=[
                replace(text, text=encrypt(tenant, _name_text(chat.chat_id, text.run_id, text.kind), text.text))
                for text in change.texts
            ],
            gates=replace(
                change.gates,
                opened=[self.encrypt_gate(gate) for gate in change.gates.opened],
                grants=[self.encrypt_grant(grant) for grant in change.gates.grants],
            ),
        )

    def encrypt_gate(self, gate: GateEntry) -> GateEntry:
        if not self.keys.encrypts:
            return gate
        return replace(gate, reason=self.keys.encrypt_text(gate.tenant, _name_gate(gate), gate.reason))

    def encrypt_grant(self, grant: GrantEntry) -> GrantEntry:
        if not self.keys.encrypts:
            return grant
        return replace(grant, event=self.keys.encrypt_text(grant.tenant, _name_grant(grant), grant.event))

    def decrypt_entry(self, entry: ChatEntry) -> ChatEntry:
        """Return the row decrypted. Raises LogDamaged, KeyUnavailable, Overloaded, like all methods here."""
        if not self.keys.is_on:
            return entry
        name = self.keys.decrypt_text(_name_chat_part(entry.chat_id, b"name"), entry.name)
        return replace(entry, name=name, title=self.decrypt_title(entry.chat_id, entry.title))

    def decrypt_entries(self, entries: Iterable[ChatEntry]) -> list[ChatEntry]:
        return [self.decrypt_entry(entry) for entry in entries]

    def decrypt_title(self, chat_id: str, title: str) -> str:
        return self.keys.decrypt_text(_name_chat_part(chat_id, b"title"), title)

    def decrypt_searched(self, chat_id: str, run_id: str, kind: str, text: str) -> str:
        return self.keys.decrypt_text(_name_text(chat_id, run_id, kind), text)

    def decrypt_gate(self, gate: GateEntry) -> GateEntry:
        return replace(gate, reason=self.keys.decrypt_text(_name_gate(gate), gate.reason)) if self.keys.is_on else gate

    def decrypt_gates(self, gates: Iterable[GateEntry]) -> list[GateEntry]:
        return [self.decrypt_gate(gate) for gate in gates]

    def decrypt_known_gates(self, gates: Iterable[GateEntry]) -> list[GateEntry]:
        """Decrypt gates of all tenants; an unreadable reason becomes empty, because waiting clients must still learn of
        a gate's end."""
        return [self._decrypt_known_gate(gate) for gate in gates]

    def decrypt_grant(self, grant: GrantEntry) -> GrantEntry:
        return replace(grant, event=self.keys.decrypt_text(_name_grant(grant), grant.event))

    def decrypt_grants(self, grants: Iterable[GrantEntry]) -> list[GrantEntry]:
        return [self.decrypt_grant(grant) for grant in grants] if self.keys.is_on else list(grants)

    def _decrypt_known_gate(self, gate: GateEntry) -> GateEntry:
        try:
            return self.decrypt_gate(gate)
        except HeadraceError:
            return replace(gate, reason="")


def _name_chat_part(chat_id: str, part: bytes) -> bytes:
    return b"chat\0%b\0%b" % (chat_id.encode(), part)


def _name_text(chat_id: str, run_id: str, kind: str) -> bytes:
    return f"text\0{chat_id}\0{run_id}\0{kind}".encode()


def _name_gate(gate: GateEntry) -> bytes:
    return f"gate\0{gate.run_id}\0{gate.gate_id}".encode()


def _name_grant(grant: GrantEntry) -> bytes:
    return f"grant\0{grant.chat_id}\0{grant.grant_id}".encode()
