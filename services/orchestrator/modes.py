"""The modes by name: each runs a conversation to its answer."""

from __future__ import annotations

from services.orchestrator.oneshot import oneshot
from services.orchestrator.plan_execute import plan_execute
from services.orchestrator.react import react

MODES = {"ONESHOT": oneshot, "REACT": react, "PLAN_EXECUTE": plan_execute}
