"""What the check has no time for, `make nightly`: its tests, and each trial that is one of the night's; two hours."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from trials.support.catalogue import find_trials
from trials.support.reliability import write_region
from trials.support.steps import Result, Step, name_checkout, python, report, run_steps

BUILD = Path("build")

STEP_MINUTES_MAX = 60.0


def list_steps() -> list[Step]:
    """One after the other: some of them measure."""
    trials = [trial for trial in find_trials().values() if trial.nightly is not None]
    return [
        Step("tests", python("tests.run", "-m", "nightly"), cores=2, minutes_max=STEP_MINUTES_MAX),
        *(
            Step(item.name, python("trials", item.name, *item.nightly), cores=2, minutes_max=STEP_MINUTES_MAX)
            for item in trials
            if item.nightly is not None
        ),
    ]


def main(arguments: list[str]) -> int:
    """Run all steps and write what came of them into the page; or run those that are named."""
    started_at = time.monotonic()
    steps = [step for step in list_steps() if not arguments or step.name in arguments]
    checkout = name_checkout()
    prepare = [Step("prerequisites", ["tests/prerequisites"]), Step("clients", CLIENTS, after=["prerequisites"])]
    run_steps(prepare, BUILD / "nightly" / "before")
    results = run_steps(steps, BUILD / "nightly")
    minutes = (time.monotonic() - started_at) / 60
    code = report(results, minutes, BUILD / "nightly.json")
    if not arguments:
        write_region("nightly", describe(results, minutes, checkout))
    return code


CLIENTS = ["make", "--no-print-directory", "small-clients"]


def describe(results: Sequence[Result], minutes: float, checkout: dict[str, str]) -> str:
    head = f"Commit {checkout['commit']}, {checkout['date']}, {minutes:.0f} minutes on {os.cpu_count()} cores:"
    rows = [f"| {result.name} | {result.outcome} | {result.minutes:.1f} |" for result in results]
    notes = [f"- {note}" for result in results for note in result.notes]
    table = ["| step | result | minutes |", "|---|---|--:|", *rows, ""]
    return "\n".join([head, "", *table, *notes, *([""] if notes else [])])
