"""Budgets as limits: what is spent and reserved of each, and when its period ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import grpc

from headrace.errors import HeadraceError
from headrace.v1 import limits_pb2, memory_pb2
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.budgets.file import BudgetsFile
from services.runtime.rpc.call_ids import forward_metadata
from services.runtime.rpc.peer_calls import translating_peer_errors

PEER_TIMEOUT_S = 5.0
"""Who looks for a limit that bites does not wait for a service that is away."""

BUDGETS_MAX = 1000
"""Budgets that are measured; a rule for each agent is one for each of them."""


async def measure_budgets(
    peers: Peers, file: BudgetsFile, budgets: Sequence[memory_pb2.SpendBudget]
) -> list[limits_pb2.Limit] | None:
    """Return the limits of the first budgets; None where budgets.yaml was never good, or memory does not answer."""
    if not file.is_good:
        return None
    if not budgets:
        return []
    request = memory_pb2.MeasureBudgetsRequest(budgets=budgets[:BUDGETS_MAX])
    try:
        with translating_peer_errors():
            response = await peers.memory.MeasureBudgets(request, timeout=PEER_TIMEOUT_S, metadata=forward_metadata())
    except (HeadraceError, grpc.aio.AioRpcError):  # it is away, or of a version that does not know the RPC
        return None
    measured = zip(request.budgets, response.uses, strict=True)
    return [limit for budget, use in measured for limit in _show_budget(budget, use)]


def _show_budget(budget: memory_pb2.SpendBudget, use: memory_pb2.BudgetUse) -> list[limits_pb2.Limit]:
    per = "key" if budget.key else "agent" if budget.agent_key else "user" if budget.user else "tenant"
    units: tuple[tuple[str, str, Literal["nano_usd_max", "tokens_max"], int, int], ...] = (
        ("budget_money", "nano_usd", "nano_usd_max", use.spent.nano_usd, use.reserved.nano_usd),
        ("budget_tokens", "tokens", "tokens_max", use.spent.tokens, use.reserved.tokens),
    )
    return [
        limits_pb2.Limit(
            name=name,
            subject=budget.budget_id,
            kind="spend",
            unit=unit,
            per=per,
            source="budgets.yaml",
            source_name=budget.budget_id.partition("/")[0],
            value=getattr(budget, field),
            used=spent + reserved,
            reserved=reserved,
            is_full=spent + reserved >= getattr(budget, field),
            opens_at=use.ends_at,
            service="memory",
        )
        for name, unit, field, spent, reserved in units
        if budget.HasField(field)
    ]
