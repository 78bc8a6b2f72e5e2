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

WISH = re.compile(
    r"^(?:please\s+)?(?:compare|contrast|research|investigate|look into|find out about|explain|比较|研究|调研"
    r"|what is the difference between)\s*(.+)$",
    re.IGNORECASE | re.DOTALL,
)
"""A question whose parts can be worked on apart: "Compare water mills and windmills"."""

PART_END = re.compile(r"\s*[;,、，]\s*(?:and\s+)?|\s+(?:and|or|with|versus|vs\.?)\s+|[和与]")
OFFERED = re.compile(r"^- agentKey ([\w.-]+):", re.MULTILINE)
"""An agent that the tool's description names."""

PARTS_MAX = 8


def choose_sub_agent_calls(request: ModelRequest) -> Iterator[tuple[str, dict[str, str]]]:
    if CALL not in request.tools:
        return
    if match := ASKED.match(request.text):
        agent, work, parts = match[1], f"{match[2]} {{}}", match[3].split(";")
    elif match := WISH.match(request.text):
        agent = next(iter(OFFERED.findall(request.descriptions[CALL])), "")
        work, parts = "Read up on {}", PART_END.split(match[1])
    else:
        return
    named = {"agentKey": agent} if agent else {}
    parts = [part.strip(" .?!。？") for part in parts]
    for part in [part for part in parts if part][:PARTS_MAX]:
        yield CALL, {**named, "task": work.format(part)}
