"""What was spent, in the index file. Blocks, in the index's thread."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from dataclasses import astuple
from typing import Any

from services.memory.storage.spend.query import SpendAnswer, SpendQuery
from services.memory.storage.spend.rows import SUM_NAMES, SpendKey, SpendRow, SpendSum

TABLES = """
CREATE TABLE spend(
    chat_id TEXT NOT NULL, day INTEGER NOT NULL, tenant TEXT NOT NULL, user_name TEXT NOT NULL,
    agent_key TEXT NOT NULL, model TEXT NOT NULL, credential TEXT NOT NULL,
    input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL,
    model_calls INTEGER NOT NULL, cost_nano_usd INTEGER NOT NULL,
    PRIMARY KEY(chat_id, day, tenant, user_name, agent_key, model, credential)) WITHOUT ROWID;
CREATE INDEX spend_by_day ON spend(tenant, day);
"""
"""The rows of deleted chats have no chat_id."""

_ADD = "ON CONFLICT DO UPDATE SET " + ", ".join(f"{name} = {name} + excluded.{name}" for name in SUM_NAMES)

_PUT = f"INSERT INTO spend VALUES (?,?,?,?,?,?,?,?,?,?,?,?) {_ADD}"

_KEY_COLUMNS = ("day", "tenant", "user_name", "agent_key", "model", "credential")
"""In the order of SpendKey's fields."""

_RETIRE = f"""
INSERT INTO spend SELECT '', day, tenant, user_name, agent_key, model, credential, {", ".join(SUM_NAMES)}
FROM spend WHERE chat_id = ? {_ADD}
"""


_RENAME = f"""
INSERT INTO spend SELECT '', day, tenant, ?, agent_key, model, '', {", ".join(f"sum({name})" for name in SUM_NAMES)}
FROM spend WHERE chat_id = '' AND tenant = ? AND user_name = ? GROUP BY day, tenant, agent_key, model {_ADD}
"""


class SpendTable:
    def __init__(self, database: sqlite3.Connection) -> None:
        self._db = database

    def add_rows(self, chat_id: str, rows: Iterable[SpendRow]) -> None:
        self._db.executemany(_PUT, ((chat_id, *astuple(key), *astuple(total)) for key, total in rows))

    def retire_chat(self, chat_id: str) -> None:
        """Keep what a chat has cost that is about to be removed."""
        self._db.execute(_RETIRE, (chat_id,))

    def list_of_chat(self, chat_id: str) -> list[SpendRow]:
        """List what a chat has cost."""
        rows = self._fetch(f"SELECT {', '.join((*_KEY_COLUMNS, *SUM_NAMES))} FROM spend WHERE chat_id = $1", [chat_id])
        keys = len(_KEY_COLUMNS)
        return [(SpendKey(*row[:keys]), SpendSum(*row[keys:])) for row in rows]

    def rename_spender(self, tenant: str, user: str, name: str) -> int:
        """Give another name to what deleted chats have cost a user, and forget by which keys; return the rows."""
        self._db.execute(_RENAME, (name, tenant, user))
        return self._delete_retired("tenant = ? AND user_name = ?", tenant, user)

    def delete_retired(self, tenant: str) -> int:
        """Delete what a tenant's deleted chats have cost."""
        return self._delete_retired("tenant = ?", tenant)

    def _delete_retired(self, where: str, *values: str) -> int:
        return self._db.execute(f"DELETE FROM spend WHERE chat_id = '' AND {where}", values).rowcount

    def clear_logs(self) -> None:
        """Delete what logs can restore."""
        self._db.execute("DELETE FROM spend WHERE chat_id <> ''")

    def sum_spend(self, query: SpendQuery) -> SpendAnswer:
        total = self._fetch(*query.render_total())[0]
        return SpendAnswer.from_rows(query, self._fetch(*query.render()) if query.columns else (), total)

    def _fetch(self, statement: str, values: list[Any]) -> list[tuple[Any, ...]]:
        return self._db.execute(re.sub(r"\$(\d+)", r"?\1", statement), values).fetchall()
