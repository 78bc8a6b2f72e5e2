"""Counts single runs of a process that has the hook: the median of each figure over several runs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HOOK = Path(__file__).parent / "hook"
ROOT = f"{Path(__file__).parents[2]}/"

QUIET_S = 0.05
"""Time that a process gets for what is left to do after an answer has ended."""


def hook(folder: Path) -> dict[str, str]:
    """Return the environment of a process to count, which writes to `folder`."""
    return {"PYTHONPATH": f"{HOOK}:{ROOT}", "COUNTS_FOLDER": str(folder)}


@dataclass(frozen=True, slots=True)
class Counts:
    figures: Mapping[str, float]
    functions: Mapping[str, float]
    """Calls of each Python function, by file and qualified name."""

    def per_delta(self, short: Counts, deltas: int) -> Counts:
        """Return what each of the `deltas` costs that this run has more than `short`."""

        def part(mine: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
            rest = {name: (mine.get(name, 0) - other.get(name, 0)) / deltas for name in mine.keys() | other.keys()}
            return {name: value for name, value in rest.items() if abs(value) > 0.2}

        functions = part(self.functions, short.functions)
        figures = part(self.figures, short.figures)
        return Counts(figures | _count_breadth(functions), functions)


class Process:
    def __init__(self, pid: int, folder: Path) -> None:
        self._pid, self._folder = pid, folder
        self._files = 0

    async def count(self, ask: Callable[[], Awaitable[object]], runs: int) -> Counts:
        """Ask `runs` times and some more, one after another."""
        for _ in range(2):
            await ask()
        found: list[Any] = []
        for _ in range(runs):
            await asyncio.sleep(QUIET_S)
            os.kill(self._pid, signal.SIGUSR1)
            await asyncio.sleep(0.005)
            await ask()
            await asyncio.sleep(QUIET_S)
            found.append(await self._read())
        functions = _take_median([one["functions"] for one in found])
        others = _take_median([one["others"] for one in found])
        return Counts({"Python calls": sum(functions.values())} | _count_breadth(functions) | others, functions)

    async def _read(self) -> Any:
        os.kill(self._pid, signal.SIGUSR1)
        self._files += 1
        path = self._folder / f"{self._pid}-{self._files}.json"
        async with asyncio.timeout(10):
            while not path.exists():
                await asyncio.sleep(0.002)
        return json.loads(path.read_text())


def _take_median(found: Sequence[Mapping[str, int]]) -> dict[str, float]:
    names = Counter(name.replace(ROOT, "") for one in found for name in one)
    values = {
        name: min([one.get(name, 0) or one.get(ROOT + name, 0) for one in found]) for name in names
    }
    return {name: value for name, value in values.items() if value}


def _count_breadth(functions: Mapping[str, float]) -> dict[str, float]:
    return {"functions": len(functions), "files": len({name.rpartition(":")[0] for name in functions})}
