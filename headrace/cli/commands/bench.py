"""headrace bench: runs of an agent, timed as their client sees them."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import click

from headrace.cli.facade import exit_codes
from headrace.cli.facade.client import FacadeClient
from headrace.cli.facade.command import FacadeCommand
from headrace.cli.facade.exit_codes import RequestRefused, ServerUnreachable
from headrace.v1 import memory_pb2

DELTAS = frozenset({"content_delta", "reasoning_delta", "tool_args", "tool_output"})

COMPLETED = "completed"


@dataclass(slots=True)
class RunTiming:
    end: str
    """`completed`, or the reason why not."""

    asked_s: float
    """Time of the question, by time.perf_counter."""

    deltas_s: list[float] = field(default_factory=list[float])
    """Times of the deltas, by the same clock."""

    chat_id: str = ""

    @property
    def gaps_s(self) -> list[float]:
        return [later - sooner for sooner, later in zip(self.deltas_s, self.deltas_s[1:], strict=False)]


@dataclass(frozen=True, slots=True)
class BenchResult:
    runs: list[RunTiming]
    elapsed_s: float
    """The time from the first question to the last end."""

    cpu_s: float

    @property
    def is_complete(self) -> bool:
        return all(run.end == COMPLETED for run in self.runs)


async def measure_runs(
    question: str, agent_key: str | None, *, streams: int, runs: int, timeout_s: float
) -> BenchResult:
    """Ask on `streams` streams at a time, `runs` times on each, always in a new chat.

    A run that takes longer than `timeout_s` is cancelled.

    Raises:
        ServerUnreachable: There is no server.
    """
    body = {"message": question, "onDisconnect": "cancel"} | ({"agentKey": agent_key} if agent_key else {})

    async def measure_stream() -> list[RunTiming]:
        # A client for each stream: the connections of one client are pooled, and a stream would wait for a free one.
        async with FacadeClient() as client:
            return [await _measure_run(client, body, timeout_s) for _ in range(runs)]

    async with FacadeClient() as facade:
        await facade.fetch_readiness()
        started_s, cpu_s = time.perf_counter(), time.process_time()
        by_stream = await asyncio.gather(*(measure_stream() for _ in range(streams)))
        timings = [timing for stream in by_stream for timing in stream]
        result = BenchResult(timings, time.perf_counter() - started_s, time.process_time() - cpu_s)
        for chat_id in filter(None, (timing.chat_id for timing in timings)):
            with suppress(RequestRefused):  # the chat of a cancelled run that has not ended yet stays
                await facade.send(memory_pb2.DeleteChatRequest(chat_id=chat_id))
    return result


async def _measure_run(facade: FacadeClient, body: dict[str, str], timeout_s: float) -> RunTiming:
    timing = RunTiming("cut", time.perf_counter())
    try:
        async with asyncio.timeout(timeout_s):
            await _read_run(facade, body, timing)
    except TimeoutError:
        timing.end = f"not over after {timeout_s:g} s"
    except (RequestRefused, ServerUnreachable) as error:
        timing.end = error.message
    return timing


async def _read_run(facade: FacadeClient, body: dict[str, str], timing: RunTiming) -> None:
    async with facade.query(body) as events:
        async for event in events:
            name = event.WhichOneof("payload")
            if name in DELTAS:
                timing.deltas_s.append(time.perf_counter())
            elif name == "chat_start":
                timing.chat_id = event.chat_start.chat_id
            elif name == "run_complete":
                timing.end = COMPLETED
            elif name == "run_cancel":
                timing.end = "run.cancel"
            elif name == "run_error":
                timing.end = event.run_error.error.code or "run.error"


QUESTION = "Write three sentences about rivers."

STREAMS_MAX = 1000
"""With more streams, this process would itself be what is measured."""

BUSY_RATIO = 0.8
"""Share of a CPU above which the figures may be this command's own."""


@click.command(cls=FacadeCommand)
@click.option("--agent", help="Key of the agent. Default: the server's default.")
@click.option(
    "--streams", default=10, show_default=True, type=click.IntRange(1, STREAMS_MAX), help="Number of streams at a time."
)
@click.option(
    "--runs",
    default=1,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Number of runs on each stream, one after another.",
)
@click.option(
    "--give-up-s",
    default=120.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds after which a run is cancelled.",
)
@click.argument("question", default=QUESTION)
def bench(agent: str | None, streams: int, runs: int, give_up_s: float, question: str) -> None:
    """Measure runs on many streams at a time.

    The measurement includes the agent's model, so a real model costs time and money here too. Times are those of this
    process, from sending a question to reading a delta; deltas that arrive together have no gap between them. Each run
    creates a chat, which is deleted at the end. Exit codes: 0 all runs completed, 1 at least one did not.
    """
    result = asyncio.run(measure_runs(question, agent, streams=streams, runs=runs, timeout_s=give_up_s))
    click.echo("\n".join(_describe_result(result, streams)))
    sys.exit(exit_codes.COMPLETED if result.is_complete else exit_codes.FAILED)


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
