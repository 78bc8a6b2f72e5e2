"""headrace bench: how fast a running suite answers."""

from __future__ import annotations

import asyncio
import math
import sys
from collections import Counter
from collections.abc import Iterator

import click

from headrace.cli.commands.bench_runs import BenchResult, measure_runs
from headrace.cli.facade.exit_codes import COMPLETED, FAILED
from headrace.cli.facade.options import url_option

QUESTION = "Write three sentences about rivers."

STREAMS_MAX = 1000
"""With more streams, this process would itself be what is measured."""

BUSY_RATIO = 0.8
"""Share of a CPU above which the figures may be this command's own."""


@click.command()
@url_option
@click.option("--agent", help="Key of the agent; without it the default.")
@click.option("--streams", default=10, show_default=True, type=click.IntRange(1, STREAMS_MAX), help="At a time.")
@click.option("--runs", default=1, show_default=True, type=click.IntRange(1, 10_000), help="Of each stream, in turn.")
@click.option(
    "--give-up-s",
    default=120.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="A run that takes longer is cancelled.",
)
@click.argument("question", default=QUESTION)
def bench(url: str, agent: str | None, streams: int, runs: int, give_up_s: float, question: str) -> None:
    """Ask QUESTION on many streams at a time, and tell how the deltas came.

    All of it is measured, the agent's model included: what a real model costs in time and money, it costs here too. The
    times are this process's, from sending a question to having read a delta; deltas that came together have no gap
    between them. Each run makes a chat, which is deleted in the end. Exit 1 when a run did not complete.
    """
    result = asyncio.run(measure_runs(url, question, agent, streams=streams, runs=runs, timeout_s=give_up_s))
    click.echo("\n".join(_describe_result(result, streams)))
    sys.exit(COMPLETED if result.is_complete else FAILED)


def _describe_result(result: BenchResult, streams: int) -> Iterator[str]:
    ends = Counter(run.end for run in result.runs)
    yield f"{'runs':20} {', '.join(f'{count} {end}' for end, count in ends.most_common())}"
    deltas = sum(len(run.deltas_s) for run in result.runs)
    rate = deltas / result.elapsed_s
    yield f"{'deltas':20} {deltas} in {result.elapsed_s:.1f} s: {rate:.0f}/s, {rate / streams:.1f}/s a stream"
    firsts_s = [run.deltas_s[0] - run.asked_s for run in result.runs if run.deltas_s]
    yield f"{'time to first delta':20} {_describe_spread(firsts_s)}"
    yield f"{'gap between deltas':20} {_describe_spread([gap_s for run in result.runs for gap_s in run.gaps_s])}"
    busy = result.cpu_s / result.elapsed_s
    limit = " (the figures may be this command's own: use fewer streams)" if busy > BUSY_RATIO else ""
    yield f"{'this command':20} {busy:.0%} of a CPU{limit}"


def _describe_spread(times_s: list[float]) -> str:
    if not times_s:
        return "none"
    ordered = sorted(times_s)
    percentiles = ((f"p{percent}", ordered[math.ceil(len(ordered) * percent / 100) - 1]) for percent in (50, 99))
    return "  ".join(f"{name} {at_s * 1000:.1f} ms" for name, at_s in (*percentiles, ("max", ordered[-1])))
