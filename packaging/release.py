"""Sets the checkout's version and moves the notes in changes/ to CHANGELOG.md: `python packaging/release.py VERSION`.

It prints the notes. `make release` then builds the files, commits, and sets the tag.
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
    "deploy/Dockerfile": r"^ARG VERSION=(\S+)",
    "deploy/helm/headrace/Chart.yaml": r"^(?:version|appVersion): (.*)$",
    "docs/operating/install.md": r"(?:registry.example|ours)/headrace(?::|, tag: )([\d.]+)",
}
"""The text around the version in each file. The OpenAPI document is made from these."""

CHANGES = "changes/*.md"
"""A file per change, with at most two sentences of Markdown."""


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
    before, notes, after = split_changelog(version)
    texts = {name: replace_version(name, version) for name in PLACES}
    texts["CHANGELOG.md"] = f"{before}## {version} ({datetime.datetime.now(datetime.UTC):%Y-%m-%d})\n\n{notes}\n{after}"
    for name, text in texts.items():
        (ROOT / name).write_text(text)
    for change in ROOT.glob(CHANGES):
        change.unlink()
    return notes


def read_version() -> str:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def check_version(version: str, now: str) -> None:
    if not re.fullmatch(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", version):
        raise CannotRelease(f"{version!r} is no version: MAJOR.MINOR.PATCH, as 0.2.0")
    if [*map(int, version.split("."))] < [*map(int, now.split("."))]:
        raise CannotRelease(f"{version} comes before {now}, which the project has")


def check_checkout(version: str) -> None:
    if changed := run_git("status", "--porcelain"):
        raise CannotRelease(f"the checkout has changes that are not committed:\n{changed.rstrip()}")
    if run_git("tag", "--list", f"v{version}"):
        raise CannotRelease(f"the tag v{version} is there already")


def run_git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def split_changelog(version: str) -> tuple[str, str, str]:
    """Return CHANGELOG.md before the release's section, the notes of that section, and all that follows it.

    The notes are what a section for the version already says, and the changes.
    """
    before, *sections = re.split(r"^(?=## )", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)
    heading = f"## {version}\n"
    own = sections.pop(0).removeprefix(heading).strip() if sections and sections[0].startswith(heading) else ""
    changes = [change.read_text().strip().replace("\n", "\n  ") for change in sorted(ROOT.glob(CHANGES))]
    notes = "\n\n".join(filter(None, (own, "\n".join(f"- {change}" for change in changes))))
    if not notes:
        raise CannotRelease("changes/ is empty: say what users notice")
    return before, notes, "".join(f"\n{section}" if not at else section for at, section in enumerate(sections))


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
