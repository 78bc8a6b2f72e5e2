"""Measure all entrances and both transports beside their peers, the facades, memory, runs, the start: [PART…]."""

from __future__ import annotations

import shutil

from trials.support.commands import make, run_python, worst

PARTS = {
    name: "benchmarks" if name == "transports" else f"benchmarks.{name}"
    for name in ("entrances", "transports", "facades", "memory", "runs", "start", "forms", "replicated")
}


def main(arguments: list[str]) -> int:
    """With --write, and `entrances` or `transports`, the part's page in docs is written: some 20 minutes each."""
    options = ["--write", "docs"] if "--write" in arguments else []
    names = [name for name in arguments if name != "--write"] or [*PARTS]
    if shutil.which("go"):
        make("build/gateway")
    return worst(run_python(PARTS[name], *options) for name in names)
