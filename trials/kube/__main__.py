"""Apply the chart's objects to a real Kubernetes API server, which compiles for some minutes."""

from pathlib import Path

from trials.support.commands import need, run_checks

NIGHTLY: list[str] = []

HERE = Path(__file__).parent


def main(arguments: list[str]) -> int:
    need("go", "openssl")
    return run_checks(HERE / "apiserver" / "check_apply.py")
