"""Benchmark entrances against peers, memory, waiting runs and replicas: [PART…]."""

import shutil

from trials.support.commands import make, run_python, worst

PARTS = ("entrances", "memory", "waiting", "replicated")


def main(arguments: list[str]) -> int:
    """Run the benchmarks; `entrances --write` takes about 20 minutes and writes docs/performance.md."""
    names = [name for name in arguments if name != "--write"] or [*PARTS]
    if shutil.which("go"):
        make("build/gateway")
    options = {"entrances": ["--write", "docs"]} if "--write" in arguments else {}
    return worst(run_python(f"benchmarks.{name}", *options.get(name, [])) for name in names)
