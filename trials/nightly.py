"""`make nightly`, for which the check has no time: the nightly tests, and each nightly trial; two hours."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from trials.support.catalogue import find_trials
from trials.support.reliability import read_region, write_region
from trials.support.steps import Result, Step, name_checkout, python, report, run_steps

BUILD = Path("build")

STEP_MINUTES_MAX = 180.0
"""Three times the duration of the longest step, the tests, on two idle cores."""

NIGHTLY_TESTS = ("-m", "nightly or hypothesis", "--hypothesis-profile", "nightly")
"""Tests that draw their cases try more of them than in the check."""


def list_steps() -> list[Step]:
    """Return the steps, to be run one after another because some of them measure."""
    trials = [trial for trial in find_trials().values() if trial.nightly is not None]
    return [
        Step("tests", python("tests.run", *NIGHTLY_TESTS), cores=2, minutes_max=STEP_MINUTES_MAX),
        *(
            Step(item.name, python("trials", item.name, *item.nightly), cores=2, minutes_max=STEP_MINUTES_MAX)
            for item in trials
            if item.nightly is not None
        ),
    ]


def main(arguments: list[str]) -> int:
    """Run all steps, or those named, and write the row of each into the page."""
    started_at = time.monotonic()
    names = [step.name for step in list_steps()]
    if unknown := set(arguments) - set(names):
        raise SystemExit(f"nightly: no step is named {', '.join(sorted(unknown))}; steps are {', '.join(names)}")
    steps = [step for step in list_steps() if not arguments or step.name in arguments]
    checkout = name_checkout()
    builds = ["build/gateway", "small-clients"] if shutil.which("go") else ["small-clients"]
    make = ["make", "--no-print-directory", *builds]
    prepare = [Step("prerequisites", ["tests/prerequisites"]), Step("builds", make, after=["prerequisites"])]
    run_steps(prepare, BUILD / "nightly" / "before")
    results: list[Result] = []
    for step in steps:
        results += run_steps([step], BUILD / "nightly")
        # Written at once, so that an interrupted night keeps its results.
        write_region("nightly", describe(results[-1:], checkout, names, read_region("nightly")))
    return report(results, (time.monotonic() - started_at) / 60, BUILD / "nightly.json")


HEAD = "| step | result | minutes | commit | date | notes |\n| --- | --- | --: | --- | --- | --- |\n"


def describe(results: Sequence[Result], checkout: dict[str, str], names: Sequence[str], before: str) -> str:
    """Return the table of all steps, in the order of `names`, keeping the rows of `before` for steps that were
    not run.
    """
    rows = {line.split("|")[1].strip(): line for line in before.splitlines() if line.startswith("| ")}
    for result in results:
        place = f"{checkout['commit']} | {checkout['date']}"
        notes = "; ".join(note.replace("|", "/") for note in result.notes)
        rows[result.name] = f"| {result.name} | {result.outcome} | {result.minutes:.1f} | {place} | {notes} |"
    return HEAD + "".join(f"{rows.get(name, f'| {name} | not run |  |  |  |  |')}\n" for name in names)
