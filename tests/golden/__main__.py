"""`python -m tests.golden`: records the runs of examples/cassettes anew, from the suite that `make demo` starts.

Record them when the events of a run change on purpose; the difference is then part of the review.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp

from headrace.sse import SseReader
from services.simulator.script import read_script
from services.simulator.server import simulator
from tests.support.suite import Running, up

EXAMPLES = Path(__file__).parents[2] / "examples"
CASSETTES = EXAMPLES / "cassettes"

RUNS: dict[str, tuple[str, str]] = {
    "plain": ("writer", "A line about mills"),
    "tool": ("assistant", "What is the weather in Paris today?"),
    "plan": ("trip_planner", "Plan a day out: pack; see what the weather in Paris is"),
    "sub-agents": ("research_team", "Compare water mills and windmills"),
    "approval": ("publisher", "Publish that the mill is open"),
    "form": ("booker", "Book a table for two"),
    "cancelled": ("booker", "Book a table for two"),
}
"""By name of the cassette: the agent and its question."""


OWN_MODES = EXAMPLES / "own_modes"

OWN_MODE = OWN_MODES / "digest.cassette"
"""A run of a custom mode; the cassette contains the mode's code."""

DOCUMENTS = "Water mills stand in valleys.\n---\nWindmills stand on hills.\n---\nSteam mills stand anywhere."


async def main() -> None:
    with tempfile.TemporaryDirectory() as data_dir:
        options = ("--simulate", "--simulate-port", "0", "--config-dir", str(EXAMPLES), "--data-dir", data_dir)
        async with up(*options) as suite, aiohttp.ClientSession(suite.url) as http:
            for name, (agent, message) in RUNS.items():
                lines = await record(suite, http, agent, message, is_cancelled=name == "cancelled")
                write(CASSETTES / f"{name}.cassette", lines)
    await record_own_mode()


async def record_own_mode() -> None:
    script = read_script(OWN_MODES / "script.json")
    with tempfile.TemporaryDirectory() as data_dir:
        async with (
            simulator(script) as model,
            up("--config-dir", str(OWN_MODES), "--data-dir", data_dir, SIMULATOR_URL=model.base_url) as suite,
            aiohttp.ClientSession(suite.url) as http,
        ):
            write(OWN_MODE, await record(suite, http, "digest", DOCUMENTS, is_cancelled=False))


def write(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))
    sys.stdout.write(f"{path.stem}: {len(lines)} lines\n")


async def record(
    suite: Running, http: aiohttp.ClientSession, agent: str, message: str, *, is_cancelled: bool
) -> list[str]:
    """Ask an agent, answer its gates or cancel it, and return the run's cassette."""
    events = await read_run(http, agent, message, is_cancelled=is_cancelled, record=True)
    lines: list[str] = []
    token: str | None = ""
    while token is not None:
        params = {"runId": events[-1]["runId"]} | ({"pageToken": token} if token else {})
        async with http.get("/api/cassette", params=params) as response:
            page = (await response.json())["data"]
        lines += page["lines"]
        token = page.get("nextPageToken")
    return lines


async def read_run(
    http: aiohttp.ClientSession, agent: str, message: str, *, is_cancelled: bool, record: bool = False
) -> list[dict[str, Any]]:
    """Return the events of a run whose gates are answered, or that is cancelled at the first."""
    body = {"message": message, "agentKey": agent, "record": record}
    events: list[dict[str, Any]] = []
    reader = SseReader()
    async with asyncio.timeout(300), http.post("/api/query", json=body) as response:
        async for chunk in response.content.iter_any():
            for frame in reader.feed(chunk):
                if frame.data != b"[DONE]":
                    events.append(json.loads(frame.data))
                    await answer(http, events, is_cancelled=is_cancelled)
    return events


async def answer(http: aiohttp.ClientSession, events: list[dict[str, Any]], *, is_cancelled: bool) -> None:
    event = events[-1]
    run_id = (
        next(seen_event["runId"] for seen_event in events if "runId" in seen_event)
        if event["type"] == "gate.open"
        else ""
    )
    if not run_id:
        return
    if is_cancelled:
        path, body = "/api/cancel", {"runId": run_id}
    elif event["kind"] == "approval":
        path, body = "/api/submit", {"approvalId": event["gateId"], "payload": {"decision": "approve"}}
    else:
        path, body = "/api/submit", {"toolId": event["gateId"], "payload": {"choice": "yes"}}
    async with http.post(path, json={"runId": run_id} | body) as response:
        assert response.status == 200, await response.text()


if __name__ == "__main__":
    asyncio.run(main())
