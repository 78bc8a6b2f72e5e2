"""Recap never costs more than it saves, for any length of run, size of results and set of tools."""

import pytest

from benchmarks.memory.recap import CHARS, STEPS, TOOLS, spend
from headrace.v1 import memory_pb2
from tests.support.memory.writing import Memory


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("chars", CHARS)
@pytest.mark.parametrize("tools", TOOLS)
async def test_recap_never_costs_more_and_saves_on_long_runs_with_large_results(
    memory: Memory, steps: int, chars: int, tools: str
) -> None:
    without = await spend(memory.stub, steps, chars, None, TOOLS[tools])
    for settings in (memory_pb2.RecapSettings(), memory_pb2.RecapSettings(steps_max=steps)):
        with_it = await spend(memory.stub, steps, chars, settings, TOOLS[tools])
        assert with_it.tokens <= without.tokens
        assert with_it.cost <= 1.01 * without.cost
        if steps >= 12 and chars >= 2_000:
            assert with_it.tokens <= 0.8 * without.tokens
