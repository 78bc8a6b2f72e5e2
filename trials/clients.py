"""Try the third-party clients of docs/clients.md: the small ones, or with --large all of them (2 GB)."""

from trials.support.commands import make, run_python

NIGHTLY = ["--large"]


def main(arguments: list[str]) -> int:
    make("small-clients", *(["large-clients"] if "--large" in arguments else []))
    return run_python("pytest", "-q", "tests/clients")
