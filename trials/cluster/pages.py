"""Executes docs/operating literally: each block of commands of a section in a shell, as an operator would.

A ```sh block is run; a ```text block after it is the expected output, where … matches anything. FOR_THE_READER
has the values specific to this machine; `docker`, `helm` and `kubectl` are those of ./programs.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.deploy.manifests import ROOT
from trials.cluster.kube import FOLDER, HERE, HOST

PAGES = ROOT / "docs" / "operating"

PAGE_NAMES = ("install.md", "upgrade.md", "backup.md", "scale.md", "when-it-breaks.md")

FOR_THE_READER = {"192.0.2.10": HOST}
"""Example values in the pages, and their values here: the address of the database."""

NOT_FOLLOWED = {
    ("install.md", "On one machine"): "there is no Docker here: tests/deploy/test_compose.py reads what it starts",
    ("backup.md", "On one machine"): "tests/deploy/test_backup.py and test_backup_of_live_runs.py do it",
    ("scale.md", "Partitions"): "tests/memory/storage/postgres/test_partitions.py does it",
}
"""Sections with commands that no check runs on the cluster, and the tests that cover them."""

TIMEOUT_S = 1800.0


@dataclass(frozen=True, slots=True)
class Step:
    commands: str
    seen: str = ""
    """Expected output lines, in order; empty if any output is fine."""


def read_sections(page: str) -> dict[str, list[Step]]:
    """Return the steps below each heading, in order."""
    sections: dict[str, list[Step]] = {}
    heading, fence, lines = "", "", list[str]()
    for line in (PAGES / page).read_text().splitlines():
        if fence:
            if line.strip() != "```":
                lines.append(line)
                continue
            steps = sections.setdefault(heading, [])
            text = "\n".join(lines)
            if fence == "sh":
                steps.append(Step(text))
            elif fence == "text" and steps:
                steps[-1] = Step(steps[-1].commands, text)
            fence, lines = "", []
        elif line.startswith("```"):
            fence = line.removeprefix("```") or "plain"
        elif line.startswith("#"):
            heading = line.lstrip("# ")
    return {name: steps for name, steps in sections.items() if steps}


def as_pattern(seen: str) -> re.Pattern[str]:
    """Return a pattern for output with these lines in this order and any amount of white space."""
    lines = [".*?".join(_as_words(piece) for piece in line.split("…")) for line in seen.splitlines()]
    return re.compile(".*?".join(lines), re.DOTALL)


def _as_words(text: str) -> str:
    return r"\s+".join(map(re.escape, re.split(r"\s+", text)))


def make_folder(name: str, checkout: Path = ROOT) -> Path:
    """Create an empty folder with the checkout in `headrace`."""
    folder = FOLDER / "operators" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "headrace").symlink_to(checkout)
    return folder


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator who follows the pages, in a folder with a checkout at `headrace`."""

    folder: Path
    words: Mapping[str, str] = field(default_factory=dict[str, str])
    """Replacements for words of the pages, such as a namespace or a version."""

    def follow(self, page: str, section: str) -> str:
        """Follow a section; return all output."""
        return "".join(self._take(step, f"{page}, {section}") for step in read_sections(page)[section])

    def run(self, commands: str) -> str:
        """Run other commands in the same folder."""
        return self._take(Step(commands), "in addition to the pages")

    def _take(self, step: Step, place: str) -> str:
        commands, seen = self._replace(step.commands), self._replace(step.seen)
        done = subprocess.run(
            # Runs in the cluster's network, except image builds, which download packages from outside.
            [
                *([] if "docker" in commands else [HERE / "cluster", "enter"]),
                "bash",
                "-euc",
                f"cd {self.folder}\n{commands}",
            ],
            env=os.environ | self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{place}:\n{commands}\n\n{done.stdout[-6000:]}"
        assert as_pattern(seen).search(done.stdout), (
            f"{place}:\n{commands}\n\nnot seen: {seen}\n\n{done.stdout[-6000:]}"
        )
        return done.stdout

    def _replace(self, text: str) -> str:
        for word, meant in (FOR_THE_READER | dict(self.words)).items():
            text = text.replace(word, meant)
        return text

    def _environment(self) -> dict[str, str]:
        path = f"{HERE / 'programs'}:{os.environ['PATH']}:/usr/sbin"
        return {
            "PATH": path,
            "CLUSTER": str(FOLDER),
            "PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "200",
        }
