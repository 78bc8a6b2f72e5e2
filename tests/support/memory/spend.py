"""Charges of runs, and their sums."""

from typing import Any

from headrace.v1 import memory_pb2
from tests.support.memory.messages import content
from tests.support.memory.writing import Memory, step_line


def charge(model: str = "simulator/demo", nano_usd: int = 1_500, **fields: Any) -> memory_pb2.Charge:
    given: dict[str, Any] = {"agent_key": "writer", "input_tokens": 100, "output_tokens": 7, "cached_tokens": 60}
    return memory_pb2.Charge(model=model, model_calls=1, cost_nano_usd=nano_usd, **(given | fields))


def charged(line: memory_pb2.LogLine, *charges: memory_pb2.Charge) -> memory_pb2.LogLine:
    line.charges.extend(charges)
    return line


def said(*charges: memory_pb2.Charge) -> memory_pb2.LogLine:
    return charged(step_line(content("hi")), *charges)


async def total(memory: Memory, **fields: Any) -> int:
    return (await memory.usage(**fields)).total.cost_nano_usd
