"""Delegation to sub-agents: one call for each part of the question, all at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from services.simulator.requests.model_request import ModelRequest

CALL = "call_subagent"

ASKED = re.compile(r"^Ask ([\w.-]+) to ([^:;]+): (.+)$", re.IGNORECASE | re.DOTALL)
"""Ask researcher to search for: water mills; windmills."""

REMINDER = "<system_reminder>"

PARTS_MAX = 8


def choose_sub_agent_calls(ask: ModelRequest) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the calls of sub-agents that the question asks for."""
    asked = ASKED.match(ask.text.partition(REMINDER)[0])
    if CALL not in ask.tools or asked is None:
        return
    parts = [part.strip() for part in asked[3].split(";") if part.strip()]
    for part in parts[:PARTS_MAX]:
        yield CALL, {"agentKey": asked[1], "task": f"{asked[2]} {part}"}
