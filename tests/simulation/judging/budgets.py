"""Budgets: what a run has spent, by its end in the log."""

from __future__ import annotations

from tests.simulation.judging.chats import Logs, split_runs
from tests.simulation.world.definitions import AGENTS

TOKENS_OF_CALL = 15
"""What each call of the scripted model says that it has cost."""

FINAL_CALLS = 1
"""Model calls beyond the limit: the answer of a run whose calls are spent."""


def judge_budgets(logs: Logs) -> list[str]:
    """No run has passed a limit by more than what was on its way: its last answer, and the calls of one reservation."""
    problems: list[str] = []
    for run_id, lines in split_runs(logs).items():
        budget = AGENTS.get(str(lines[0].get("query", {}).get("agentKey")), {}).get("budget")
        usage = next((line["usage"] for line in lines if line["_type"] == "run" and "usage" in line), {})
        if not budget:
            continue
        tokens = usage.get("inputTokens", 0) + usage.get("outputTokens", 0)
        spent = {
            "maxModelCalls": usage.get("modelCalls", 0) - FINAL_CALLS,
            "maxToolCalls": usage.get("toolCalls", 0),
            "maxTokens": tokens - TOKENS_OF_CALL + 1,
        }
        if usage.get("estimated"):
            del spent["maxTokens"]  # a call that was cut counts as what was sent, which is more than its model says
        problems += [
            f"run {run_id} has spent {usage}, and its {limit} is {budget[limit]}"
            for limit, count in spent.items()
            if count > budget[limit]
        ]
    return problems
