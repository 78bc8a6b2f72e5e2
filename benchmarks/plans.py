"""How long a plan of eight tasks takes, one by one and together: `python -m benchmarks.plans`

The tasks' models take 0.2 s, 0.4 s, … 1.6 s: together they should take what the slowest does, not what all do.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.processes import stack
from headrace.client import Client

MODEL = "sim-1"
TASKS = 8
STEP_MS = 200
QUESTION = "Do at the same time: " + "; ".join(f"part {number}" for number in range(1, TASKS + 1))


def agent(strategy: str) -> dict[str, Any]:
    prompts = {stage: {"systemPrompt": f"You {stage}."} for stage in ("plan", "execute", "summary")}
    return {
        "mode": "PLAN_EXECUTE",
        "modelConfig": {"providerKey": "sim", "model": MODEL},
        "planExecute": {"strategy": strategy, **prompts},
    }


def rule(number: int) -> dict[str, Any]:
    """The work turn of a task takes its time; all else is the simulator's own."""
    text = f"^Your task [0-9a-f]{{8}}: part {number}$"
    return {"match": {"text": f"(?m){text}"}, "steps": [{"waitMs": STEP_MS * number}, {"content": "done"}]}


async def main() -> None:
    agents = {strategy.lower(): agent(strategy) for strategy in ("SEQUENTIAL", "PARALLEL")}
    script = [rule(number) for number in range(1, TASKS + 1)]
    table = Table(title=f"A plan of {TASKS} tasks (s)", title_justify="left")
    for name in ("strategy", "whole run", "first task's start to last task's end", "slowest task", "sum of the tasks"):
        table.add_column(name, justify="left" if name == "strategy" else "right")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        async with stack(Path(folder), [MODEL], agents=agents, script=script) as where, Client(where.grpc) as client:
            for key in agents:
                await _run(client, key)
                table.add_row(key, *(f"{figure:.2f}" for figure in await _run(client, key)))
    Console(width=120).print(table)


async def _run(client: Client, key: str) -> tuple[float, float, float, float]:
    started = time.perf_counter()
    starts: dict[str, float] = {}
    took: dict[str, float] = {}
    ended = started
    async with asyncio.timeout(60), client.ask(QUESTION, agent_key=key) as deltas:
        async for delta in deltas:
            now = time.perf_counter()
            match delta.WhichOneof("payload"):
                case "task_start":
                    starts[delta.task_start.task_id] = now
                case "task_complete":
                    took[delta.task_complete.task_id] = now - starts[delta.task_complete.task_id]
                    ended = now
                case "run_error":
                    raise RuntimeError(delta.run_error.error.message)
                case _:
                    pass
    assert len(took) == TASKS, f"{len(took)} tasks were completed"
    return time.perf_counter() - started, ended - min(starts.values()), max(took.values()), sum(took.values())


if __name__ == "__main__":
    uvloop.run(main())
