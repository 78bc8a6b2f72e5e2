"""CPU time of a process by the operating system's own accounting, so that a noisy machine does not decide."""

from __future__ import annotations

from pathlib import Path


def cpu_us(pid: int) -> float:
    """Microseconds that all threads of `pid` have spent on a CPU (first field of schedstat, nanoseconds)."""
    total_ns = 0
    for stat in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        total_ns += int(stat.read_text().split()[0])
    return total_ns / 1000


def rss_mb(pid: int) -> float:
    """Resident memory of `pid` in MB."""
    return _read_mb(f"/proc/{pid}/status", "VmRSS:")


def peak_rss_mb(pid: int) -> float:
    """The most that it has ever had."""
    return _read_mb(f"/proc/{pid}/status", "VmHWM:")


def pss_mb(pid: int) -> float:
    """Memory of `pid` in MB, where several processes share a page each its part (PSS)."""
    return _read_mb(f"/proc/{pid}/smaps_rollup", "Pss:")


def _read_mb(path: str, name: str) -> float:
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    return 0.0
