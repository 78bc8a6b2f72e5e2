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
    return _status_mb(pid, "VmRSS:")


def peak_rss_mb(pid: int) -> float:
    """The most that it has ever had."""
    return _status_mb(pid, "VmHWM:")


def _status_mb(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    return 0.0


def pss_mb(pid: int) -> float:
    """Memory of `pid` in MB, where several processes share a page each its part (PSS)."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0
