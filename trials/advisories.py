"""Check everything we ship against the advisory databases of Python, Go and npm, and against the allowed licences."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trials.support.commands import ROOT, NotTried, install, run, run_python

NIGHTLY: list[str] = []

PIP_AUDIT = "pip-audit==2.10.1"
GOVULNCHECK = "golang.org/x/vuln/cmd/govulncheck@v1.9.0"
GO_FOUND = 3
"""Exit code of govulncheck if the gateway can reach a function named in an advisory."""

NPM = ("packaging/typescript", "examples/clients/ag-ui", "examples/clients/typescript")
"""Our npm package, and examples that users copy."""

BUILD = ROOT / "build" / "advisories"


def main(arguments: list[str]) -> int:
    found: list[str] = []
    not_tried: list[str] = []
    for name, ask in (("Python", ask_python), ("Go", ask_go), ("npm", ask_npm)):
        try:
            advisories = ask()
            print(f"{name}: {'; '.join(advisories) or 'no advisory'}", flush=True)
            found += advisories
        except NotTried as reason:
            print(f"{name}: not tried: {reason}", flush=True)
            not_tried.append(name)
    licences = run_python("pytest", "-q", "tests/docs/test_licences.py")
    if found or licences:
        return 1
    if not_tried:
        raise NotTried(f"the advisory databases of {', '.join(not_tried)} were not reached")
    return 0


def ask_python() -> list[str]:
    python = install(PIP_AUDIT, into=BUILD / "python")
    files = [word for name in ("suite", "data") for word in ("-r", f"packaging/hashes/{name}.txt")]
    audit = [str(python), "-m", "pip_audit", "--progress-spinner=off", "--disable-pip", "-f", "json", *files]
    _, output, errors = capture(audit)
    try:
        packages: list[dict[str, Any]] = json.loads(output)["dependencies"]
    except ValueError:
        raise NotTried(last_line(errors)) from None
    if skipped := [package for package in packages if "skip_reason" in package]:
        raise NotTried(f"{len(skipped)} of {len(packages)} packages: {skipped[0]['skip_reason']}")
    return [f"{package['name']} {one['id']}" for package in packages for one in package["vulns"]]


def ask_go() -> list[str]:
    if shutil.which("go") is None:
        raise NotTried("Go is not installed")
    if run("make", "--no-print-directory", "--silent", "build/gateway") != 0:
        raise NotTried("cannot make build/gateway")
    code, output, errors = capture(["go", "run", GOVULNCHECK, "./..."], ROOT / "deploy" / "gateway")
    if code not in (0, GO_FOUND) and "Vulnerability #" not in output:
        raise NotTried(last_line(errors))
    return [line.strip() for line in output.splitlines() if line.startswith("Vulnerability #")]


def ask_npm() -> list[str]:
    """Return the advisories of our npm packages; lock files are created below build because the project has none."""
    if shutil.which("npm") is None:
        raise NotTried("Node is not installed")
    found: list[str] = []
    for name in NPM:
        (folder := BUILD / "npm" / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name / "package.json", folder)
        code, _, errors = capture(["npm", "install", "--package-lock-only", "--ignore-scripts"], folder)
        if code != 0:
            raise NotTried(last_line(errors))
        report: dict[str, Any] = json.loads(capture(["npm", "audit", "--json"], folder)[1] or "{}")
        if "vulnerabilities" not in report:
            raise NotTried(f"npm audit: {report.get('message', 'no report')}")
        found += [f"{package} ({one['severity']}) of {name}" for package, one in report["vulnerabilities"].items()]
    return found


def capture(command: Sequence[str], folder: Path = ROOT) -> tuple[int, str, str]:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if not line.startswith("exit status")]
    return (lines or ["no output"])[-1]
