"""Grants of runs in the index file. Blocks, in the index's thread."""

from __future__ import annotations

import re
import sqlite3

from services.memory.storage.operating.claims import (
    RUN,
    Amount,
    BudgetUse,
    SpendClaim,
    SpendDecision,
    decide_claim,
    render_use,
)

TABLES = """
CREATE TABLE grants(
    run_id TEXT PRIMARY KEY, nano_usd INTEGER NOT NULL, tokens INTEGER NOT NULL, agents TEXT NOT NULL) WITHOUT ROWID;
"""

_SOURCE = "grants JOIN runs USING (run_id) LEFT JOIN leases USING (run_id)"

_CLEAN = "DELETE FROM grants WHERE run_id NOT IN (SELECT run_id FROM runs WHERE NOT is_ended)"


class GrantTable:
    def __init__(self, database: sqlite3.Connection) -> None:
        self._db = database

    def grant_claim(self, claim: SpendClaim) -> SpendDecision | None:
        """Decide and store; None where the tenant has no such run that goes on. The caller holds the transaction."""
        self._db.execute(_CLEAN)
        charged = self._db.execute(_number(RUN), (claim.run_id, claim.tenant)).fetchone()
        if charged is None:
            return None
        decision = decide_claim(claim, Amount(*charged), self.measure_uses(claim))
        if (grant := decision.granted) is not None:
            row = (claim.run_id, grant.nano_usd, grant.tokens, claim.agents)
            self._db.execute("REPLACE INTO grants VALUES (?,?,?,?)", row)
        return decision

    def measure_uses(self, claim: SpendClaim) -> list[BudgetUse]:
        """Return what is used of each budget of the claim, its own run's grant apart."""
        uses: list[BudgetUse] = []
        for budget in claim.budgets:
            statement, values = render_use(claim, budget, _SOURCE)
            row = self._db.execute(_number(statement), values).fetchone()
            uses.append(BudgetUse(Amount(*row[:2]), Amount(*row[2:])))
        return uses


def _number(statement: str) -> str:
    return re.sub(r"\$(\d+)", r"?\1", statement)
