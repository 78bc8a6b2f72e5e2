"""Measures the disk alone, with the write that a query waits for."""

from __future__ import annotations

import os
import time
from pathlib import Path

from benchmarks.entrances.arrivals import percentile_ms

WRITES = 200
LINE = b"x" * 1023 + b"\n"


def time_writes(folder: Path) -> tuple[float, float]:
    """Append lines of 1 KiB to a file, each with its `fdatasync`; return p50 and p99 in ms."""
    waits_ms: list[float] = []
    with (folder / "disk").open("ab", buffering=0) as file:
        for _ in range(WRITES):
            began_s = time.perf_counter()
            file.write(LINE)
            os.fdatasync(file.fileno())
            waits_ms.append((time.perf_counter() - began_s) * 1000)
    return percentile_ms(waits_ms, 50) / 1000, percentile_ms(waits_ms, 99) / 1000
