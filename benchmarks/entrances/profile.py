"""Samples a suite in one process to attribute the CPU of runs to parts."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.entrances.loads import REACT_RUNS, SHORT_RUNS, STREAMS
from benchmarks.entrances.measuring import Load, Measuring
from benchmarks.entrances.ways import Way
from benchmarks.grid import Grid
from benchmarks.peers import litellm
from benchmarks.peers.environment import Unavailable, install, read_version

PROFILER = Path(litellm.__file__).parent / "profiler.txt"
LOADS = (SHORT_RUNS[1], REACT_RUNS[1], STREAMS[1])
SAMPLES_PER_S = 400

PARTS = (
    ("memory", r"services/memory/"),
    ("orchestrator", r"services/orchestrator/"),
    ("llm_gateway", r"services/llm_gateway/|headrace/sse"),
    ("facade", r"services/facade/|aiohttp/"),
    ("calls: credentials, rules of fields, ids, status", r"services/runtime/(?:rpc|auth|telemetry)/"),
    ("calls: streams, deadlines, back-pressure", r"services/runtime/(?:calls|local|http2|turnstile)"),
    ("log lines", r"services/runtime/process/log|structlog/"),
    ("the loop itself", r"asyncio/runners\.py"),
)
"""Parts, and patterns of the innermost frame that belongs to them; other samples are `other`."""

_FRAME = re.compile(r"\(([^()]+)\)$")


async def measure_parts(measuring: Measuring, way: Way) -> Grid:
    """Sample the process of `way` under each load, counting only the thread that holds the interpreter.

    Raises:
        Unavailable: The profiler is not available.
    """
    programs = await install(PROFILER, read_version(PROFILER, "py-spy"))
    columns = ("<part", *(f"{load.streams} × {load.key}" for load in LOADS))
    shares = [await _sample(measuring, way, load, programs / "py-spy") for load in LOADS]
    grid = Grid("Where the CPU of the suite's process goes, % of samples", columns)
    for part in (*(name for name, _ in PARTS), "other"):
        grid.rows.append((part, *(f"{share[part] * 100:.0f}" for share in shares)))
    return grid


async def _sample(measuring: Measuring, way: Way, load: Load, program: Path) -> dict[str, float]:
    window_s = f"{measuring.window_s:.0f}"
    limits = ("--rate", str(SAMPLES_PER_S), "--duration", window_s, "--pid", str(way.pids["suite"]))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        samples = Path(folder) / "samples"
        command = (str(program), "record", "--gil", "--nonblocking", "--format", "raw", "--output", str(samples))
        loading = asyncio.create_task(measuring.measure(load, way))
        try:
            await asyncio.sleep(load.spread_s)
            pipe = asyncio.subprocess.PIPE
            profiler = await asyncio.create_subprocess_exec(*command, *limits, stdout=pipe, stderr=pipe)
            _, said = await profiler.communicate()
        finally:
            await loading
        if profiler.returncode:
            raise Unavailable((said.decode().strip().splitlines() or ["the profiler did not say why"])[0])
        return _count_parts(samples.read_text().splitlines())


def _count_parts(lines: Iterable[str]) -> dict[str, float]:
    """Return the share of samples by part; a line has frames, outermost first, and their number of samples."""
    counts = Counter[str]()
    for line in lines:
        stack, _, times = line.rpartition(" ")
        counts[_find_part(stack.split(";"))] += int(times)
    total = max(counts.total(), 1)
    return {name: counts[name] / total for name in (*(name for name, _ in PARTS), "other")}


def _find_part(frames: Sequence[str]) -> str:
    for frame in reversed(frames):
        match = _FRAME.search(frame)
        for name, pattern in PARTS:
            if match is not None and re.search(pattern, match[1]):
                return name
    return "other"
