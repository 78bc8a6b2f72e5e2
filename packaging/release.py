"""Gives the checkout a version: where it is written, and the section of CHANGELOG.md, whose text is printed.

`python packaging/release.py VERSION`; `make release` then makes the files of it, commits, and sets the tag.
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]

PLACES = {
    "pyproject.toml": r'^version = "(.*)"$',
    "packaging/typescript/package.json": r'^  "version": "(.*)",$',
    "deploy/kubernetes/components/pod/kustomization.yaml": r"^  - \{name: headrace, newTag: (.*)\}$",
    "deploy/kubernetes/components/backup/kustomization.yaml": r"^  - \{name: headrace, newTag: (.*)\}$",
    "docs/operating/install.md": r"registry.example/headrace(?::|, (?:newTag|tag): )([\d.]+)",
}
"""What stands around the version in each file, wherever it is. The OpenAPI document and the chart are made of these."""

UNRELEASED = "## Unreleased\n"


class CannotRelease(Exception):
    """Says what is to be done first."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="release.py", description=__doc__)
    parser.add_argument("version", help="MAJOR.MINOR.PATCH")
    try:
        notes = set_version(parser.parse_args().version)
    except CannotRelease as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{notes}\n")
    return 0


def set_version(version: str) -> str:
    """Write the version everywhere; return the notes of the release. Nothing is written if something is wrong."""
    check_version(version, read_version())
    check_checkout(version)
    changelog = (ROOT / "CHANGELOG.md").read_text()
    notes = take_notes(changelog)
    texts = {name: replace_version(name, version) for name in PLACES}
    heading = f"{UNRELEASED}\n## {version} ({datetime.datetime.now(datetime.UTC):%Y-%m-%d})\n"
    texts["CHANGELOG.md"] = changelog.replace(UNRELEASED, heading, 1)
    for name, text in texts.items():
        (ROOT / name).write_text(text)
    return notes


def read_version() -> str:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def check_version(version: str, now: str) -> None:
    if not re.fullmatch(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", version):
        raise CannotRelease(f"{version!r} is no version: MAJOR.MINOR.PATCH, as 0.2.0")
    if [*map(int, version.split("."))] <= [*map(int, now.split("."))]:
        raise CannotRelease(f"{version} does not come after {now}, which the project has")


def check_checkout(version: str) -> None:
    if changed := run_git("status", "--porcelain"):
        raise CannotRelease(f"the checkout has changes that are not committed:\n{changed.rstrip()}")
    if run_git("tag", "--list", f"v{version}"):
        raise CannotRelease(f"the tag v{version} is there already")


def run_git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def take_notes(changelog: str) -> str:
    """Return what stands under Unreleased."""
    _, found, rest = changelog.partition(UNRELEASED)
    notes = re.split(r"^## ", rest, maxsplit=1, flags=re.M)[0].strip()
    if not found or not notes:
        raise CannotRelease("CHANGELOG.md has nothing under Unreleased: say what users notice")
    return notes


def replace_version(name: str, version: str) -> str:
    text = (ROOT / name).read_text()
    places = [*re.finditer(PLACES[name], text, re.M)]
    if len({place[1] for place in places}) != 1:
        raise CannotRelease(f"{name} has {len(places)} places for the version, and not one version: {PLACES[name]}")
    for place in reversed(places):
        start, end = place.span(1)
        text = text[:start] + version + text[end:]
    return text


if __name__ == "__main__":
    sys.exit(main())
