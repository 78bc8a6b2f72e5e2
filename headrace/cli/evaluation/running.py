"""Makes the runs of an evaluation, some at a time, within its budget."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from headrace.cli.evaluation.asking import ask_case, judge_result
from headrace.cli.evaluation.checks import Functions, check_result
from headrace.cli.evaluation.journal import Journal
from headrace.cli.evaluation.result import Planned, Result, plan_runs
from headrace.cli.evaluation.suite import Suite
from headrace.cli.facade.client import FacadeClient
from headrace.run_states import State

Progress = Callable[[int, int, float], None]
"""Told how many of how many runs are done, and what they have cost."""


class Evaluation:
    def __init__(self, suite: Suite, folder: Path, functions: Functions, journal: Journal, progress: Progress) -> None:
        self._suite, self._folder, self._functions, self._journal = suite, folder, functions, journal
        self._progress = progress
        self.planned = plan_runs(suite)
        self.is_over_budget = False

    @property
    def results(self) -> list[Result]:
        """In the order of the plan; those that have been made."""
        known = self._journal.results
        return [known[planned.key] for planned in self.planned if planned.key in known]

    @property
    def cost_usd(self) -> float:
        return sum(result.cost_usd or 0.0 for result in self.results)

    async def run(self, url: str) -> None:
        """Make the runs that are missing; errors of the server end it, and leave what is done."""
        left = [planned for planned in self.planned if planned.key not in self._journal.results]
        left.reverse()
        self._tell()
        async with FacadeClient(url) as facade:
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(self._suite.concurrency, len(left))):
                        group.create_task(self._work(facade, left))
            except ExceptionGroup as errors:
                raise errors.exceptions[0] from errors

    async def _work(self, facade: FacadeClient, left: list[Planned]) -> None:
        while left:
            budget = self._suite.budget_usd
            if budget is not None and self.cost_usd >= budget:
                self.is_over_budget = True
                return
            planned = left.pop()
            journal = self._journal
            result = await ask_case(facade, journal.id, planned, self._folder, self._suite.timeout_ms)
            checks = self._suite.list_checks(planned.case)
            # Before any judge adds what it costs to the run's cost.
            result.verdicts = [check_result(check, result, self._functions) for check in checks if check.judge is None]
            for check in checks:
                if check.judge is not None and result.state == State.COMPLETED:
                    said = await judge_result(facade, journal.id, check, planned, result, self._suite)
                    result.verdicts.append(said)
            journal.add(result)
            self._tell()

    def _tell(self) -> None:
        self._progress(len(self.results), len(self.planned), self.cost_usd)
