"""The plan as modes use it: its tasks, its changes, and the tools with which models change it."""

from services.orchestrator.calls.own_tools.planning import ADD, GET, RESTATE, UPDATE
from services.orchestrator.run.plan import OPEN, ActivePlan, Level, Task, groups
from services.orchestrator.setup.past_plans import offering_plan

__all__ = ["ADD", "GET", "OPEN", "RESTATE", "UPDATE", "ActivePlan", "Level", "Task", "groups", "offering_plan"]
