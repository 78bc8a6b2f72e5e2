"""CPU time and memory of a process, as accounted by the operating system, which is robust on a noisy machine."""

from __future__ import annotations

from pathlib import Path


def cpu_us(pid: int) -> float:
    """Return the CPU time in microseconds of all threads of `pid` (first field of schedstat, in nanoseconds)."""
    total_ns = 0
    for stat in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        total_ns += int(stat.read_text().split()[0])
    return total_ns / 1000


def rss_mb(pid: int) -> float:
    """Return the resident memory of `pid` in MB."""
    return _read_mb(f"/proc/{pid}/status", "VmRSS:")


def pss_mb(pid: int) -> float:
    """Return the memory of `pid` in MB, with shared pages divided among the processes that share them (PSS)."""
    return _read_mb(f"/proc/{pid}/smaps_rollup", "Pss:")


def _read_mb(path: str, name: str) -> float:
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    return 0.0
