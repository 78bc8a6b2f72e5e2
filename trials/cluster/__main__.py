"""Run the chart on a real Kubernetes, and break it: before a release (needs root and an otherwise idle
machine).
"""

from trials.cluster.kube import HERE, name_missing_programs
from trials.support.commands import NotTried, run, run_checks


def main(arguments: list[str]) -> int:
    if name_missing_programs():
        run("tests/prerequisites", "image", "cluster")
    if missing := name_missing_programs():
        raise NotTried(f"not here: {', '.join(missing)}")
    return run_checks(*HERE.glob("check_*.py"))
