"""Gates in the index file. Blocks, in the index's thread."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from dataclasses import astuple

from services.memory.storage.encrypted.rows import RowCipher
from services.memory.storage.gates.query import LIST_CHATS, GateQuery, GrantQuery
from services.memory.storage.gates.rows import COLUMNS, GRANT_COLUMNS, GateChange, GateEntry, GrantEntry
from services.memory.storage.gates.watch import GateKey
from services.memory.storage.where import Place

TABLES = """
CREATE TABLE gates(
    run_id TEXT NOT NULL, gate_id TEXT NOT NULL, chat_id TEXT NOT NULL, tenant TEXT NOT NULL, requester TEXT NOT NULL,
    agent_key TEXT NOT NULL, kind TEXT NOT NULL, tool_id TEXT NOT NULL, tool_name TEXT NOT NULL, risk TEXT NOT NULL,
    reason TEXT NOT NULL, viewport_key TEXT NOT NULL, opened_at INTEGER NOT NULL, expires_at INTEGER NOT NULL,
    state TEXT NOT NULL, closed_at INTEGER NOT NULL, answered_by TEXT NOT NULL, credential TEXT NOT NULL,
    answerers TEXT NOT NULL, not_requester INTEGER NOT NULL, votes_needed INTEGER NOT NULL, voters TEXT NOT NULL,
    claimed_by TEXT NOT NULL, claimed_until INTEGER NOT NULL,
    PRIMARY KEY(run_id, gate_id)) WITHOUT ROWID;
CREATE INDEX gates_by_chat ON gates(chat_id);
CREATE INDEX gates_by_tenant_and_chat ON gates(tenant, chat_id);
CREATE INDEX gates_waiting ON gates(tenant, requester, opened_at, run_id, gate_id) WHERE state = 'open';
CREATE INDEX gates_of_tenant ON gates(tenant, opened_at, run_id, gate_id) WHERE state = 'open';
CREATE TABLE gate_grants(
    chat_id TEXT NOT NULL, grant_id TEXT NOT NULL, run_id TEXT NOT NULL, tenant TEXT NOT NULL,
    requester TEXT NOT NULL, made_by TEXT NOT NULL, made_at INTEGER NOT NULL, expires_at INTEGER NOT NULL,
    is_over INTEGER NOT NULL, event TEXT NOT NULL,
    PRIMARY KEY(chat_id, grant_id)) WITHOUT ROWID;
CREATE INDEX gate_grants_of_tenant ON gate_grants(tenant, made_at, chat_id, grant_id) WHERE is_over = 0;
"""

_PUT = f"REPLACE INTO gates({COLUMNS}) VALUES ({', '.join('?' * (COLUMNS.count(',') + 1))})"

_PUT_GRANT = f"REPLACE INTO gate_grants({GRANT_COLUMNS}) VALUES ({', '.join('?' * (GRANT_COLUMNS.count(',') + 1))})"

_CLOSE = """
UPDATE gates SET state = ?, closed_at = ?, answered_by = ?, credential = ?
WHERE run_id = ? AND gate_id = coalesce(?, gate_id) AND state = 'open'
"""

_UPDATE = """
UPDATE gates SET answerers = answerers || ?, voters = iif(?, '', voters) || ?,
    claimed_by = coalesce(?, claimed_by), claimed_until = coalesce(?, claimed_until)
WHERE run_id = ? AND gate_id = ? AND state = 'open'
"""


class GateTable:
    def __init__(self, database: sqlite3.Connection, rows: RowCipher) -> None:
        self._db = database
        self._rows = rows

    def put_changes(self, changes: Iterable[GateChange]) -> None:
        """Apply changes in order."""
        for change in filter(None, changes):
            self._db.executemany(_PUT, map(astuple, change.opened))
            self._db.executemany(
                _UPDATE,
                (
                    (
                        *(update.answerers, update.is_restart, update.voters),
                        *(update.claimed_by, update.claimed_until),
                        *(update.run_id, update.gate_id),
                    )
                    for update in change.updates
                ),
            )
            self._db.executemany(
                _CLOSE,
                (
                    (end.state, end.closed_at, end.answered_by, end.credential, end.run_id, end.gate_id)
                    for end in change.closings
                ),
            )
            self._db.executemany(_PUT_GRANT, map(astuple, change.grants))

    def find_gate(self, tenant: str, run_id: str, gate_id: str) -> GateEntry | None:
        found = self._db.execute(
            f"SELECT {COLUMNS} FROM gates WHERE run_id = ? AND gate_id = ? AND tenant = ?", (run_id, gate_id, tenant)
        ).fetchone()
        return self._rows.decrypt_gate(GateEntry(*found)) if found else None

    def find_gates(self, keys: Iterable[GateKey]) -> list[GateEntry]:
        statement = f"SELECT {COLUMNS} FROM gates WHERE run_id = ? AND gate_id = coalesce(?, gate_id)"
        return self._rows.decrypt_known_gates(
            GateEntry(*row) for key in keys for row in self._db.execute(statement, key)
        )

    def list_gates(self, query: GateQuery) -> tuple[list[GateEntry], Place | None]:
        statement, values = query.render()
        gates, after = query.split(self._db.execute(re.sub(r"\$(\d+)", r"?\1", statement), values).fetchall())
        return self._rows.decrypt_gates(gates), after

    def list_chats(self, tenant: str, after: str) -> list[tuple[str, int]]:
        """List the next page of the tenant's chats with gates, each with the time of its last line."""
        return self._db.execute(LIST_CHATS.replace("$", "?"), (tenant, after)).fetchall()

    def list_grants(self, query: GrantQuery) -> tuple[list[GrantEntry], Place | None]:
        statement, values = query.render()
        grants, after = query.split(self._db.execute(re.sub(r"\$(\d+)", r"?\1", statement), values).fetchall())
        return self._rows.decrypt_grants(grants), after
