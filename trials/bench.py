"""Measure entrances beside their peers, memory, waiting runs, fair use, replicas: [PART…]."""

from __future__ import annotations

import shutil

from trials.support.commands import make, run_python, worst

PARTS = ("entrances", "memory", "waiting", "fair_use", "replicated")


def main(arguments: list[str]) -> int:
    """With `entrances --write`, docs/performance.md is written, in some 20 minutes."""
    names = [name for name in arguments if name != "--write"] or [*PARTS]
    if shutil.which("go"):
        make("build/gateway")
    options = {"entrances": ["--write", "docs"]} if "--write" in arguments else {}
    return worst(run_python(f"benchmarks.{name}", *options.get(name, [])) for name in names)
