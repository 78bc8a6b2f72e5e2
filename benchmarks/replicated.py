"""Measures the gain from replicas of `headrace up` on one machine: `python -m benchmarks.replicated`

One process, a process for each service and N replicas (`--replicas`) take turns under enough concurrent short runs over
SSE to fill them. One process and replicas are pinned to a core each; all others run on any. If they share those cores,
runs per second are lower than on a larger machine; the CPU per run then shows when a process is full. With `--streams`
each run has 200 deltas, 33 a second.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path

import uvloop
from rich.console import Console

from benchmarks.entrances.loads import get_delta_cpu_us, sum_cpu_ms
from benchmarks.entrances.measuring import DELTAS, Load, Measuring
from benchmarks.entrances.reader import Seen
from benchmarks.entrances.ways import LONG, PROVIDER, SHORT, Way, make_query
from benchmarks.memory.tables import table
from benchmarks.processes import started, starting_suite

console = Console(width=120)


async def measure_form(base_url: str, form: str, given: argparse.Namespace) -> Seen:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        async with starting_suite(Path(folder), base_url, [given.model], form=form, environment={}) as running:
            cores = sorted(os.sched_getaffinity(0))
            suites = [pid for name, pid in running.pids.items() if name.startswith("suite")]
            for number, pid in enumerate(suites):
                _keep_to_core(pid, cores[number % len(cores)])
            way = Way(name=form, url=f"{running.http}/api/query", pids=running.pids, make_body=make_query)
            measuring = Measuring(base_url, given.window_s, 1, lambda text: console.print(text, highlight=False))
            seen = await measuring.measure(make_load(given), way)
            assert seen is not None, "the reader has reported why"
            return seen


def make_load(given: argparse.Namespace) -> Load:
    return Load(given.model, given.at_once, 6.0 if given.model == LONG else 0.1)


def _keep_to_core(pid: int, core: int) -> None:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


async def main(given: argparse.Namespace) -> None:
    forms = ("--one-process", "--split", f"--replicas={given.replicas}")
    seen: dict[str, list[Seen]] = defaultdict(list)
    async with started("-m", PROVIDER) as (_, line):
        for _ in range(given.rounds):
            for form in forms:
                seen[form].append(await measure_form(line.strip(), form, given))
    title = f"headrace up on {os.cpu_count()} cores: {given.at_once} × {given.model}, {given.rounds} rounds"
    columns = ("runs/s", "deltas/s", "CPU µs/delta", "first delta ms p50", "p99")
    found = table(title, "form", *columns, "CPU ms/run", "of it memory", "full at runs/s")
    for form in forms:
        counted = zip(*(_count(given.model, one) for one in seen[form]), strict=True)
        found.add_row(form, *(f"{statistics.median(values):.1f}" for values in counted))
    console.print(found)


def _count(model: str, seen: Seen) -> tuple[float, ...]:
    runs = seen.deltas / DELTAS[model]
    spent_ms = {name: spent_us / 1000 / runs for name, spent_us in seen.cpu_us.items()}
    # Each replica has only a share of the runs, so its time per run of all is smaller.
    full_runs_per_s = 1000 / max(spent_ms.values())
    return (
        runs / seen.elapsed_s,
        seen.deltas / seen.elapsed_s,
        get_delta_cpu_us(seen),
        seen.first_ms_p50,
        seen.first_ms_p99,
        sum_cpu_ms(seen) / runs,
        spent_ms.get("memory", 0.0),
        full_runs_per_s,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="benchmarks.replicated", description=__doc__)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--streams", dest="model", action="store_const", const=LONG, default=SHORT)
    parser.add_argument("--at-once", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--window-s", type=float, default=7.0)
    uvloop.run(main(parser.parse_args()))
