"""Grants of runs in the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.memory.storage.operating.claims import (
    RUN,
    Amount,
    BudgetUse,
    SpendClaim,
    SpendDecision,
    decide_claim,
    render_use,
)
from services.memory.storage.postgres.connection.session import strip_nul

if TYPE_CHECKING:
    from services.memory.storage.postgres.connection.session import Connection

_SOURCE = "grants JOIN runs USING (run_id)"

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('budgets of ' || $1, 0))"
"""Held to the end of the transaction: claims of a tenant are decided one at a time."""

_CLEAN = "DELETE FROM grants USING runs WHERE runs.run_id = grants.run_id AND runs.of_tenant = $1 AND runs.is_ended"

_PUT = """
INSERT INTO grants (run_id, nano_usd, tokens, agents) VALUES ($1, $2, $3, $4)
ON CONFLICT (run_id) DO UPDATE SET nano_usd = EXCLUDED.nano_usd, tokens = EXCLUDED.tokens, agents = EXCLUDED.agents
"""


async def grant_claim(claim: SpendClaim, connection: Connection) -> SpendDecision | None:
    """Decide and store; None where the tenant has no such run that goes on."""
    async with connection.transaction():
        await connection.execute(_LOCK, claim.tenant)
        await connection.execute(_CLEAN, claim.tenant)
        charged = await connection.fetchrow(RUN, claim.run_id, claim.tenant)
        if charged is None:
            return None
        decision = decide_claim(claim, Amount(*charged), await measure_uses(claim, connection))
        if (grant := decision.granted) is not None:
            await connection.execute(_PUT, claim.run_id, grant.nano_usd, grant.tokens, strip_nul(claim.agents))
        return decision


async def measure_uses(claim: SpendClaim, connection: Connection) -> list[BudgetUse]:
    """Return what is used of each budget of the claim, its own run's grant apart."""
    uses: list[BudgetUse] = []
    for budget in claim.budgets:
        statement, values = render_use(claim, budget, _SOURCE)
        row = await connection.fetchrow(statement, *map(strip_nul, values))
        assert row is not None, "sums have a row"
        uses.append(BudgetUse(Amount(*row[:2]), Amount(*row[2:])))
    return uses
