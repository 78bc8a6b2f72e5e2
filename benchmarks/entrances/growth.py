"""Cost of a start and of an idle suite, and their growth with agents and chats."""

from __future__ import annotations

import asyncio
import math
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cpu import cpu_us, pss_mb
from benchmarks.entrances.loads import get_run_cpu_ms
from benchmarks.entrances.measuring import Load, Measuring
from benchmarks.entrances.ways import SHORT, Way
from benchmarks.grid import Grid
from benchmarks.processes import RunningSuite, configure, starting_suite
from services.memory.log.lines import add_checksum, remove_checksum

SETTLE_S = 3.0
REST_S = 5.0
INDEX_TIMEOUT_S = 600.0
ONE_AT_A_TIME = Load(SHORT, 1, 0.1)
FORMS = ("--one-process", "--split")

UUID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    ready_s: float
    idle_mb: float
    """PSS of all processes."""

    idle_share: float
    """CPU of all idle processes, in percent of a core."""

    run_cpu_ms: float
    """CPU of a short run, one at a time; NaN if none was measured."""


async def measure_forms(measuring: Measuring) -> tuple[Grid, dict[str, Rest]]:
    grid = _make_grid("`headrace up` at rest", "form")
    rests: dict[str, Rest] = {}
    for form in FORMS:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            rests[form] = await _measure_rest(measuring, Path(folder), form)
        _add_row(grid, form, rests[form])
        measuring.report(f"at rest, {form}: ready in {rests[form].ready_s:.2f} s, {rests[form].idle_mb:.0f} MB")
    return grid, rests


async def measure_growth(measuring: Measuring, agents: int, chats: int) -> tuple[Grid, dict[str, Rest]]:
    """Measure one process with ten agents and no chats, with `agents` agents, and with `chats` chats, started
    twice.
    """
    grid = _make_grid("Growth, in one process", "")
    rests: dict[str, Rest] = {}

    async def add(name: str, folder: Path, *, is_indexing: bool = False) -> None:
        rests[name] = await _measure_rest(measuring, folder, FORMS[0], is_indexing=is_indexing)
        _add_row(grid, name, rests[name])
        measuring.report(f"{name}: ready in {rests[name].ready_s:.2f} s")

    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        _write_agents(folder / "config", measuring.base_url, 10)
        await add("10 agents, no chats", folder)
        shutil.rmtree(folder / "config")
        _write_agents(folder / "config", measuring.base_url, agents)
        await add(f"{agents:,} agents", folder)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        _write_agents(folder / "config", measuring.base_url, 10)
        await _write_chats(measuring, folder, chats)
        await add(f"{chats:,} chats, first start", folder, is_indexing=True)
        await add(f"{chats:,} chats, second start", folder)
    return grid, rests


def _make_grid(title: str, name: str) -> Grid:
    return Grid(title, (f"<{name}", "ready s", "PSS MB", "CPU at rest, % of a core", "CPU ms of a short run"))


def _add_row(grid: Grid, name: str, rest: Rest) -> None:
    cells = (f"{rest.ready_s:.2f}", f"{rest.idle_mb:.0f}", f"{rest.idle_share:.1f}")
    run = "–" if math.isnan(rest.run_cpu_ms) else f"{rest.run_cpu_ms:.1f}"
    grid.rows.append((name, *cells, run))


async def _measure_rest(measuring: Measuring, folder: Path, form: str, *, is_indexing: bool = False) -> Rest:
    """Measure a start, and the suite once it rests; with `is_indexing`, once all chats are indexed."""
    async with _starting(measuring, folder, form) as (ready_s, suite):
        async with asyncio.timeout(INDEX_TIMEOUT_S):
            while is_indexing and not _is_indexed(folder):  # noqa: ASYNC110 - another process, which tells nobody
                await asyncio.sleep(0.5)
        await asyncio.sleep(SETTLE_S)
        idle_mb = sum(pss_mb(pid) for pid in suite.pids.values())
        before_us = sum(cpu_us(pid) for pid in suite.pids.values())
        await asyncio.sleep(REST_S)
        idle_us = sum(cpu_us(pid) for pid in suite.pids.values()) - before_us
        way = Way(name=f"gRPC {form}", url=suite.grpc, pids=suite.pids)
        seen = await measuring.measure(ONE_AT_A_TIME, way)
    return Rest(
        ready_s=ready_s,
        idle_mb=idle_mb,
        idle_share=idle_us / 1e4 / REST_S,
        run_cpu_ms=get_run_cpu_ms(ONE_AT_A_TIME, seen) if seen and seen.deltas else math.nan,
    )


def _is_indexed(folder: Path) -> bool:
    return any("index complete" in log.read_text() for log in (folder / "data" / "logs").glob("*.log"))


@asynccontextmanager
async def _starting(measuring: Measuring, folder: Path, form: str) -> AsyncGenerator[tuple[float, RunningSuite]]:
    """Start a suite; yield the seconds until it was ready, and the suite."""
    begun_s = time.perf_counter()
    async with starting_suite(folder, measuring.base_url, [SHORT], form=form, environment={}) as suite:
        yield time.perf_counter() - begun_s, suite


def _write_agents(config: Path, base_url: str, count: int) -> None:
    configure(config, base_url, [SHORT])
    agent = (config / "agents" / f"{SHORT}.json").read_text()
    for number in range(count - 1):
        (config / "agents" / f"agent-{number}.json").write_text(agent)


async def _write_chats(measuring: Measuring, folder: Path, count: int) -> None:
    """Write `count` copies of a real chat, each with its own ids and checksums and not yet indexed."""
    async with _starting(measuring, folder, FORMS[0]) as (_, suite):
        await measuring.measure(ONE_AT_A_TIME, Way(name="making a chat", url=suite.grpc, pids=suite.pids))
    chats = folder / "data" / "chats"
    files = sorted(chats.glob("*.json"), key=lambda file: file.stat().st_size)
    chat_id, lines = files[-1].stem.encode(), [remove_checksum(line) for line in files[-1].read_bytes().splitlines()]
    ids = {chat_id, *UUID.findall(b"".join(lines))}
    shutil.rmtree(chats)
    chats.mkdir()
    for _ in range(count):
        fresh = {known: str(uuid.uuid4()).encode() for known in ids}
        copy = [add_checksum(UUID.sub(lambda match: fresh[match[0]], line)) + b"\n" for line in lines]  # noqa: B023 - called at once
        (chats / f"{fresh[chat_id].decode()}.json").write_bytes(b"".join(copy))
    measuring.report(f"{count:,} chats of {sum(map(len, lines)) / 1024:.0f} KB are written")
