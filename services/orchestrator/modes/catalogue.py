"""Runners by mode; each returns the finish reason."""

from __future__ import annotations

from services.orchestrator.modes.custom import run_custom
from services.orchestrator.modes.oneshot import run_oneshot
from services.orchestrator.modes.plan_execute.plan_execute import run_plan_execute
from services.orchestrator.modes.react import run_react
from services.orchestrator.modes.remote import run_remote

RUNNERS = {
    "ONESHOT": run_oneshot,
    "REACT": run_react,
    "PLAN_EXECUTE": run_plan_execute,
    "CUSTOM": run_custom,
    "REMOTE": run_remote,
}
