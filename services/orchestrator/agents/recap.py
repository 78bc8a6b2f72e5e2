"""Recap settings of an agent."""

from __future__ import annotations

from headrace.v1 import memory_pb2
from services.orchestrator.agents.definition import Definition
from services.runtime.tokens.count import ESTIMATE_ENCODING, count_text


def make_recap_settings(agent: Definition, steps_max: int) -> memory_pb2.RecapSettings | None:
    recap = agent.memory.recap
    if not recap.enabled:
        return None
    return memory_pb2.RecapSettings(
        active_prompt_tokens_max=recap.active_prompt_max_tokens,
        insights_window_size=recap.insights_window_size,
        steps_max=steps_max,
    )


def count_excess_tokens(agent: Definition) -> int:
    """Return by how many tokens the prompt exceeds recap's limit."""
    recap = agent.memory.recap
    if not recap.enabled:
        return 0
    prompt = agent.primary.system_prompt + agent.primary.examples
    return max(0, count_text(prompt, ESTIMATE_ENCODING) - recap.active_prompt_max_tokens)
