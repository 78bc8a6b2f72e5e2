"""Compares the first delta of a chat that is due for compaction, or being compacted, with that of one that is not.

The chats are equal and take turns; their agents differ only in the threshold. A chat over the threshold is
compacted after its run has ended, so no first delta waits for the summary.
"""

from __future__ import annotations

import asyncio
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.asking import time_first_delta
from benchmarks.memory.lines import PROSE
from benchmarks.memory.tables import table
from benchmarks.processes import simulated_suite
from headrace.client import Client

if TYPE_CHECKING:
    from rich.table import Table

MODEL, SUMMARY_MODEL = "bench-20x1ms", "sim-1"
ROUNDS, WARM_UP = 30, 3
FILLING = PROSE * 120
"""About 3,000 tokens; six of them exceed half of the window assumed for an unknown model."""
QUESTIONS = 6

COMPACTED_S = 30.0
LATER_MS_MAX = 50
"""Promised maximum delay of the first delta in a chat that is due for compaction."""

FILLER, CALM, DUE = "filler", "calm", "due"


async def first_delta(folder: Path) -> Table:
    found = table("First delta in ms, the model's own included", "chat", "p50", "p90", "later than none", "promise")
    times = await _measure(folder)
    calm_ms = statistics.median(times[CALM])
    for name, each in times.items():
        later_ms = statistics.median(each) - calm_ms
        found.add_row(
            name,
            f"{statistics.median(each):.1f}",
            f"{statistics.quantiles(each, n=10)[-1]:.1f}",
            "" if name == CALM else f"{later_ms:+.1f}",
            "" if name == CALM else "holds" if later_ms <= LATER_MS_MAX else f"over {LATER_MS_MAX}",
        )
    return found


async def _measure(folder: Path) -> dict[str, list[float]]:
    """Return the times in ms of each kind of chat."""
    times: dict[str, list[float]] = {CALM: [], DUE: [], "being compacted": []}
    agents = {FILLER: _make_agent(1.0), CALM: _make_agent(1.0), DUE: _make_agent(0.5)}
    suite = simulated_suite(folder, [MODEL, SUMMARY_MODEL], agents=agents)
    async with suite as address, Client(address) as client:
        for number in range(WARM_UP + ROUNDS):
            calm_ms, _ = await time_first_delta(client, CALM, await _fill(client))
            due_ms, chat_id = await time_first_delta(client, DUE, await _fill(client))
            # Its summary is being written now.
            during_ms, _ = await time_first_delta(client, DUE, chat_id)
            await _wait_for_summary(client, chat_id)
            if number >= WARM_UP:
                for each, value in zip(times.values(), (calm_ms, due_ms, during_ms), strict=True):
                    each.append(value)
    return times


def _make_agent(threshold: float) -> dict[str, Any]:
    return {
        "mode": "REACT",
        "modelConfig": {"providerKey": "sim", "model": MODEL},
        "memory": {"threshold": threshold, "summary": {"providerKey": "sim", "model": SUMMARY_MODEL}},
        "react": {"systemPrompt": "Answer."},
    }


async def _fill(client: Client) -> str:
    """Create a chat that is over one threshold and below the other."""
    chat_id: str | None = None
    for number in range(QUESTIONS):
        async with client.ask(f"{number}: {FILLING}", agent_key=FILLER, chat_id=chat_id) as run:
            async for event in run:
                assert not event.HasField("run_error"), event
                chat_id = chat_id or event.run_start.chat_id or None
    assert chat_id is not None
    return chat_id


async def _wait_for_summary(client: Client, chat_id: str) -> None:
    """Wait until the chat is compacted, so that the next one has the machine to itself."""
    async with asyncio.timeout(COMPACTED_S):
        while not (await client.context(chat_id, agent_key=DUE)).HasField("compaction"):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)
