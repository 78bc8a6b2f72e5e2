"""headrace bench: how fast a running suite answers, as its clients see it."""

from __future__ import annotations

import asyncio
import math
import sys
from collections import Counter
from collections.abc import Iterator

import click

from headrace.cli import exits
from headrace.cli.measuring import COMPLETED, Measured, measured
from headrace.cli.options import url_option

QUESTION = "Write three sentences about rivers."

STREAMS_MAX = 1000
"""More than one process reads without being itself what is measured."""

BUSY_RATIO = 0.8
"""Of a CPU: from here on the figures may be this command's own."""


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
    found = asyncio.run(measured(url, question, agent, streams=streams, runs=runs, timeout_s=give_up_s))
    click.echo("\n".join(_report(found, streams)))
    sys.exit(exits.COMPLETED if all(ran.end == COMPLETED for ran in found.runs) else exits.FAILED)


def _report(found: Measured, streams: int) -> Iterator[str]:
    ends = Counter(ran.end for ran in found.runs)
    yield f"{'runs':20} {', '.join(f'{count} {end}' for end, count in ends.most_common())}"
    deltas = sum(len(ran.deltas_s) for ran in found.runs)
    rate = deltas / found.elapsed_s
    yield f"{'deltas':20} {deltas} in {found.elapsed_s:.1f} s: {rate:.0f}/s, {rate / streams:.1f}/s a stream"
    yield f"{'time to first delta':20} {_spread([ran.deltas_s[0] - ran.asked_s for ran in found.runs if ran.deltas_s])}"
    yield f"{'gap between deltas':20} {_spread([gap_s for ran in found.runs for gap_s in ran.gaps_s])}"
    busy = found.cpu_s / found.elapsed_s
    limit = " (the figures may be this command's own: use fewer streams)" if busy > BUSY_RATIO else ""
    yield f"{'this command':20} {busy:.0%} of a CPU{limit}"


def _spread(times_s: list[float]) -> str:
    if not times_s:
        return "none"
    ordered = sorted(times_s)
    told = ((f"p{percent}", ordered[math.ceil(len(ordered) * percent / 100) - 1]) for percent in (50, 99))
    return "  ".join(f"{name} {at_s * 1000:.1f} ms" for name, at_s in (*told, ("max", ordered[-1])))
