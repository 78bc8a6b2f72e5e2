"""Run a part of the tests on the newest other Python of this machine: [PYTHON]."""

import shutil
import subprocess
import sys
from pathlib import Path

from trials.support.commands import ROOT, NotTried, install, run

NIGHTLY: list[str] = []

VERSIONS = ("3.14", "3.13", "3.12")
ENVIRONMENT = ROOT / ".venv-other"

TESTS = (
    "tests/e2e/test_crash.py::test_a_suite_killed_during_a_run_continues_it_after_a_restart[tool.output]",
    *(f"tests/test_{name}.py" for name in ("layout", "protos", "errors", "fold", "event_json")),
    *(f"tests/docs/test_{name}.py" for name in ("complete", "generated", "references")),
    *("tests/runtime/rpc", "tests/runtime/http2/test_tls.py", "tests/orchestrator/agents"),
    *("tests/orchestrator/run/test_approval_rules.py", "tests/llm_gateway/providers", "tests/facade/requests"),
    *("tests/memory/requests/test_append.py", "tests/facade/openapi"),
)
"""The layout and the contract, all parsers, and one run through every service, killed in the middle."""


def main(arguments: list[str]) -> int:
    other = Path(arguments[0]) if arguments else find_python()
    if other is None:
        raise NotTried(f"no newer Python than {sys.version.split()[0]} is installed")
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        run("packaging/uv", "venv", "--quiet", "--clear", "--python", other, ENVIRONMENT)
    install("-c", "constraints.txt", "-e", ".[dev]", into=ENVIRONMENT)
    return run(python, "-m", "tests.run", "-q", *TESTS)


def find_python() -> Path | None:
    """Return the newest Python other than that of the tests."""
    for version in VERSIONS:
        pyenv = shutil.which("pyenv")
        roots = subprocess.run([pyenv, "prefix", version], capture_output=True, text=True).stdout if pyenv else ""
        for name in (f"python{version}", f"{roots.strip()}/bin/python"):
            found = shutil.which(name)
            if found and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0:
                return Path(found)
    return None
