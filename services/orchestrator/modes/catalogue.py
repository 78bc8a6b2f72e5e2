"""The modes by name: each runs a conversation to its answer."""

from __future__ import annotations

from services.orchestrator.modes.oneshot import oneshot
from services.orchestrator.modes.plan_execute.plan_execute import plan_execute
from services.orchestrator.modes.react import react

MODES = {"ONESHOT": oneshot, "REACT": react, "PLAN_EXECUTE": plan_execute}
