"""Budgets: spending of a run, by its end in the log, and of all runs of an agent."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from trials.simulation.judging.chats import Logs, split_runs
from trials.simulation.world.definitions import AGENTS, ANSWER_TOKENS_MAX, PURSE_USD, USD_PER_MTOK

if TYPE_CHECKING:
    from collections.abc import Collection

TOKENS_OF_CALL = 15
"""Reported cost of each call of the scripted model."""

FINAL_CALLS = 1
"""Model calls beyond the limit: the final answer of a run that has used up its calls."""

DAY_MS = 86_400_000

LITTLE_USD = 1e-9
"""Tolerance for costs, which are counted in billionths."""


def judge_budgets(logs: Logs, copies: Collection[str]) -> list[str]:
    """Check that no run exceeded a limit by more than its last answer and the calls of one reservation.

    Runs that are `copies` cost nothing.
    """
    problems: list[str] = []
    purses_usd, reserved_usd = defaultdict[int, float](float), defaultdict[int, float](float)
    for run_id, lines in split_runs(logs).items():
        agent_key = str(lines[0].get("query", {}).get("agentKey"))
        budget = AGENTS.get(agent_key, {}).get("budget")
        usage = next((line["usage"] for line in lines if line["_type"] == "run" and "usage" in line), {})
        if not budget or run_id in copies:
            continue
        problems += [
            f"run {run_id} has spent {usage}, and its {limit} is {budget[limit]}"
            for limit, count in _count_spent(usage).items()
            if count > budget.get(limit, count)
        ]
        days = {line["updatedAt"] // DAY_MS for line in lines if "updatedAt" in line}
        if agent_key == "spender" and len(days) == 1:  # worlds start at midnight, some with slow clocks
            [day] = days
            purses_usd[day] += usage.get("costUsd", 0.0)
            reserved_usd[day] += _count_excess_usd(usage)
    problems += [
        f"the purse of {PURSE_USD} has paid {usd}"
        for day, usd in purses_usd.items()
        if usd > PURSE_USD + reserved_usd[day] + LITTLE_USD
    ]
    return problems


def _count_spent(usage: dict[str, Any]) -> dict[str, float]:
    """Return the amount that counts against each limit.

    An interrupted call counts with what was sent, which is more than its model reports.
    """
    tokens = usage.get("inputTokens", 0) + usage.get("outputTokens", 0)
    spent: dict[str, float] = {
        "maxModelCalls": usage.get("modelCalls", 0) - FINAL_CALLS,
        "maxToolCalls": usage.get("toolCalls", 0),
        "maxCostUsd": usage.get("costUsd", 0.0) - _count_excess_usd(usage) - LITTLE_USD,
    }
    return spent if usage.get("estimated") else spent | {"maxTokens": tokens - TOKENS_OF_CALL + 1}


def _count_excess_usd(usage: dict[str, Any]) -> float:
    """Return by how much a run may have exceeded its reservation: nothing, or one interrupted call."""
    return ANSWER_TOKENS_MAX * USD_PER_MTOK / 1e6 if usage.get("estimated") else 0.0
