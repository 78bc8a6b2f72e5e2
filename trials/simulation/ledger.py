"""Stores the results of series of worlds, one file per state of the code; the files can be summed.

A state is named after the last commit that changed code used by worlds. An interrupted series continues with
the seeds missing in its state's file. Files of other machines can be copied into the same folder.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trials.simulation.simulate import Result

FOLDER = Path("build/series")
"""Not in the repository: `make release` packs it, and docs/reliability.md has the sums."""

CODE = ("headrace", "services", "protos", "tests", "constraints.txt", "pyproject.toml")
"""Paths of the code used by worlds."""

RELEASES = "v*"
"""Tags of releases."""

UNRELEASED = "unreleased"

PROBLEM_CHARS_MAX = 300


@dataclass
class Record:
    """Results of the worlds of one state of the code."""

    commit: str
    when: str
    """Time of the commit, ISO 8601."""
    seeds: set[int] = field(default_factory=set[int])
    simulated_s: float = 0.0
    bites: Counter[tuple[str, str, str]] = field(default_factory=Counter[tuple[str, str, str]])
    counts: Counter[str] = field(default_factory=Counter[str])
    failed: dict[int, str] = field(default_factory=dict[int, str])
    """First problem of each seed with a broken promise."""

    def add(self, result: Result) -> None:
        """Add a seed's world, unless it has been added before."""
        if result.seed in self.seeds:
            return
        self.seeds.add(result.seed)
        self.simulated_s += result.simulated_s
        self.bites += result.bites
        self.counts += result.counts
        if result.problems:
            self.failed[result.seed] = result.problems[0][:PROBLEM_CHARS_MAX]

    def save(self, folder: Path = FOLDER) -> None:
        """Write the state's file atomically."""
        folder.mkdir(parents=True, exist_ok=True)
        kept = {
            "commit": self.commit,
            "when": self.when,
            "seeds": name_ranges(self.seeds),
            "simulatedS": round(self.simulated_s),
            "hits": {" ".join(cell): count for cell, count in sorted(self.bites.items())},
            "counts": dict(sorted(self.counts.items())),
            "failed": {str(seed): self.failed[seed] for seed in sorted(self.failed)},
        }
        path = folder / f"{self.commit}.json"
        part = path.with_suffix(".part")
        part.write_text(json.dumps(kept, indent=1) + "\n")
        part.replace(path)


def name_ranges(seeds: Collection[int]) -> str:
    """Return seeds as ranges in order, such as "1-300, 400"."""
    ranges: list[list[int]] = []
    for seed in sorted(seeds):
        if ranges and seed == ranges[-1][1] + 1:
            ranges[-1][1] = seed
        else:
            ranges.append([seed, seed])
    return ", ".join(f"{first}-{last}" if first != last else f"{first}" for first, last in ranges)


def read_ranges(text: str) -> Iterator[int]:
    """Yield the seeds in the output of `name_ranges`."""
    for part in text.split(", "):
        start, _, end = part.partition("-")
        yield from range(int(start), int(end or start) + 1)


def open_record(folder: Path = FOLDER) -> Record:
    """Return the stored record of the code in the working tree; the caller must save it after adding results.

    Raises:
        RuntimeError: The code has uncommitted changes.
    """
    if changed := _run_git("status", "--porcelain", "--", *CODE):
        raise RuntimeError(f"a series is kept by its commit, and these changes have none: {changed}")
    commit, when = _run_git("log", "-1", "--format=%h %cI", "--abbrev=10", "--", *CODE).split()
    path = folder / f"{commit}.json"
    return _read(path) if path.exists() else Record(commit, when)


def read_all(folder: Path = FOLDER) -> list[Record]:
    """Return all stored records, oldest state first."""
    return sorted(map(_read, folder.glob("*.json")), key=lambda record: (record.when, record.commit))


def name_release(record: Record) -> str:
    """Return the first release that contains the state, or UNRELEASED."""
    tags = _run_git("tag", "--contains", record.commit, "--list", RELEASES, "--sort=creatordate", checks=False)
    return tags.partition("\n")[0] or UNRELEASED


def add_up(records: Sequence[Record]) -> tuple[Counter[tuple[str, str, str]], Counter[str]]:
    """Return the sums of all records: hits of faults, and outcomes."""
    return _sum(record.bites for record in records), _sum(record.counts for record in records)


def _sum(counters: Iterable[Counter[Any]]) -> Counter[Any]:
    total: Counter[Any] = Counter()
    for counter in counters:
        total.update(counter)
    return total


def _read(path: Path) -> Record:
    kept = json.loads(path.read_text())
    hits: Counter[tuple[str, str, str]] = Counter()
    for cell, count in kept["hits"].items():
        kind, service, phase = cell.split(" ")
        hits[kind, service, phase] = count
    failed = {int(seed): problem for seed, problem in kept["failed"].items()}
    seeds = {*read_ranges(kept["seeds"])}
    return Record(kept["commit"], kept["when"], seeds, kept["simulatedS"], hits, Counter(kept["counts"]), failed)


def _run_git(*args: str, checks: bool = True) -> str:
    return subprocess.run(["git", *args], check=checks, capture_output=True, text=True).stdout.strip()
