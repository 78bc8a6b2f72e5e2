"""Describes the machine and the versions of a measurement."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import version
from pathlib import Path

from benchmarks.peers import litellm

PACKAGES = ("grpcio", "h2", "uvloop", "aiohttp", "protobuf")


def machine() -> dict[str, str]:
    """Return the facts by name."""
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
        "LiteLLM": litellm.VERSION,
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
