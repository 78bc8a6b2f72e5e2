"""Build the image without a registry, and check it against the manifests' description of pods (as root)."""

from pathlib import Path

from trials.image.programs import name_missing
from trials.support.commands import NotTried, run, run_checks

NIGHTLY: list[str] = []


def main(arguments: list[str]) -> int:
    if name_missing():
        run("tests/prerequisites", "image")
    if missing := name_missing():
        raise NotTried(f"not here: {', '.join(missing)}")
    return run_checks(Path(__file__).with_name("check_image.py"))
