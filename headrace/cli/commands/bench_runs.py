"""Runs timed as their client sees them."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field

from headrace.cli.facade.client import FacadeClient
from headrace.cli.facade.exit_codes import RequestRefused, ServerUnreachable

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
    url: str, question: str, agent_key: str | None, *, streams: int, runs: int, timeout_s: float
) -> BenchResult:
    """Ask on `streams` streams at a time, `runs` times on each, always in a new chat.

    A run that takes longer than `timeout_s` is cancelled.

    Raises:
        ServerUnreachable: There is no server.
    """
    body = {"message": question, "onDisconnect": "cancel"} | ({"agentKey": agent_key} if agent_key else {})

    async def measure_stream() -> list[RunTiming]:
        # A client for each stream: the connections of one client are pooled, and a stream would wait for a free one.
        async with FacadeClient(url) as client:
            return [await _measure_run(client, body, timeout_s) for _ in range(runs)]

    async with FacadeClient(url) as facade:
        await facade.fetch_readiness()
        started_s, cpu_s = time.perf_counter(), time.process_time()
        by_stream = await asyncio.gather(*(measure_stream() for _ in range(streams)))
        timings = [timing for stream in by_stream for timing in stream]
        result = BenchResult(timings, time.perf_counter() - started_s, time.process_time() - cpu_s)
        for chat_id in filter(None, (timing.chat_id for timing in timings)):
            with suppress(RequestRefused):  # the chat of a cancelled run that has not ended yet stays
                await facade.delete("/api/chat", chatId=chat_id)
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
