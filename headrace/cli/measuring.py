"""Runs as a client sees them in time: when their deltas came, and how they ended."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field

from headrace.cli.blocks import TERMINAL
from headrace.cli.exits import Refused, Unreachable
from headrace.cli.server import Server

DELTAS = frozenset({"content.delta", "reasoning.delta", "tool.args", "tool.output"})

COMPLETED = "completed"


@dataclass(slots=True)
class Ran:
    """One run."""

    end: str
    """`completed`, or what came instead."""

    asked_s: float
    """When its question was sent, by the clock of time.perf_counter."""

    deltas_s: list[float] = field(default_factory=list[float])
    """When each of its deltas was there, by the same clock."""

    chat_id: str = ""
    """The chat that it has made."""

    @property
    def gaps_s(self) -> list[float]:
        return [later - sooner for sooner, later in zip(self.deltas_s, self.deltas_s[1:], strict=False)]


@dataclass(frozen=True, slots=True)
class Measured:
    """All runs together."""

    runs: list[Ran]
    elapsed_s: float
    """From the first question to the last end."""

    cpu_s: float
    """What this process took for it."""


async def measured(
    url: str, question: str, agent_key: str | None, *, streams: int, runs: int, timeout_s: float
) -> Measured:
    """Ask on so many streams at a time, on each so many times in turn, each time in a new chat.

    A run that takes longer than `timeout_s` is hung up on, which cancels it.

    Raises:
        Unreachable: There is no server.
    """
    body = {"message": question, "onDisconnect": "cancel"} | ({"agentKey": agent_key} if agent_key else {})
    async with Server(url) as server:
        await server.ready()
        started_s, cpu_s = time.perf_counter(), time.process_time()
        each = await asyncio.gather(*(_stream(url, body, runs, timeout_s) for _ in range(streams)))
        ran = [one for some in each for one in some]
        found = Measured(ran, time.perf_counter() - started_s, time.process_time() - cpu_s)
        for chat_id in filter(None, (one.chat_id for one in ran)):
            with suppress(Refused):  # what was cancelled may still be ending; it stays
                await server.delete("/api/chat", chatId=chat_id)
    return found


async def _stream(url: str, body: dict[str, str], runs: int, timeout_s: float) -> list[Ran]:
    # A connection of its own: those of one client are pooled, and the next would wait for a place.
    async with Server(url) as server:
        return [await _ran(server, body, timeout_s) for _ in range(runs)]


async def _ran(server: Server, body: dict[str, str], timeout_s: float) -> Ran:
    ran = Ran("cut", time.perf_counter())
    try:
        async with asyncio.timeout(timeout_s):
            await _read(server, body, ran)
    except TimeoutError:
        ran.end = f"not over after {timeout_s:g} s"
    except (Refused, Unreachable) as error:
        ran.end = error.message
    return ran


async def _read(server: Server, body: dict[str, str], ran: Ran) -> None:
    async with server.query(body) as events:
        async for event in events:
            if event.type in DELTAS:
                ran.deltas_s.append(time.perf_counter())
            elif event.type == "chat.start":
                ran.chat_id = event.chat_id
            elif event.type in TERMINAL:
                ran.end = COMPLETED if event.type == "run.complete" else event.error.code or event.type
