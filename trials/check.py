"""The checks run by CI, `make check`: format, types, protos, the gateway, tests, 100 simulated worlds."""

import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

from trials.support.steps import Step, python, report, run_steps

BUILD = Path("build")

PROTOS = """
make --no-print-directory --silent build/image.binpb
.venv/bin/buf lint build/image.binpb --config protos/buf.yaml
.venv/bin/buf breaking build/image.binpb --against protos/headrace.binpb --config protos/buf.yaml
"""
GATEWAY = """
make --no-print-directory --silent build/gateway
cd deploy/gateway
test -z "$(gofmt -l .)" || { echo "gofmt -l:"; gofmt -l .; exit 1; }
export CGO_ENABLED=0 GOFLAGS='-trimpath -buildvcs=false'
go vet ./...
go test ./internal/...
"""
NO_GATEWAY = 'echo "NOTICE: Go is not installed: deploy/gateway is NOT built, linted or tested"'


def bash(script: str) -> list[str]:
    return ["bash", "-euc", script]


def list_steps() -> list[Step]:
    """Return the steps, longest single-core step first; the tests start once the other steps need no core."""
    gateway = GATEWAY if shutil.which("go") else NO_GATEWAY
    return [
        Step("prerequisites", ["tests/prerequisites"], cores=0),
        Step("ruff", bash(".venv/bin/ruff format --check .\n.venv/bin/ruff check .")),
        Step("types", [".venv/bin/pyright"]),
        Step("protos", bash(PROTOS)),
        Step("gateway", bash(gateway), after=["protos"]),
        Step("clients", ["make", "--no-print-directory", "small-clients"], after=["gateway"]),
        Step("generated", [sys.executable, "packaging/stale.py"], after=["clients"]),
        Step("tests", python("tests.run", "-m", "not nightly"), after=["prerequisites", "generated"], cores=2),
        Step("simulate", python("trials", "simulate", "1-100"), after=["tests"], cores=2),
    ]


def main(arguments: list[str]) -> int:
    """Run all steps, or those named."""
    started_at = time.monotonic()
    steps = [step for step in list_steps() if not arguments or step.name in arguments]
    kept = {step.name for step in steps}
    steps = [replace(step, after=[name for name in step.after if name in kept]) for step in steps]
    results = run_steps(steps, BUILD / "check")
    return report(results, (time.monotonic() - started_at) / 60, BUILD / "check.json")
