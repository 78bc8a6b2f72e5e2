"""Delegation to sub-agents: one call for each part of the question, all at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from services.simulator.requests.model_request import ModelRequest

CALL = "call_subagent"

ASKED = re.compile(r"^Ask ([\w.-]+) to ([^:;]+): (.+)$", re.IGNORECASE | re.DOTALL)
"""Matches "Ask researcher to search for: water mills; windmills"."""

REMINDER = "<system_reminder>"

PARTS_MAX = 8


def choose_sub_agent_calls(request: ModelRequest) -> Iterator[tuple[str, dict[str, str]]]:
    match = ASKED.match(request.text.partition(REMINDER)[0])
    if CALL not in request.tools or match is None:
        return
    parts = [part.strip() for part in match[3].split(";") if part.strip()]
    for part in parts[:PARTS_MAX]:
        yield CALL, {"agentKey": match[1], "task": f"{match[2]} {part}"}
