"""The console's Markdown, judged by the examples of CommonMark's specification: each is drawn within a time limit and
shows the content of its reference. Its appearance is not judged.
"""

import json
import queue
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.judges.environments import NODE, ROOT, find_npm_environment

HERE = Path(__file__).parent
MODULE = ROOT / "services/facade/console/static/markdown/markdown.js"

DRAWN_S = 4.0
"""The longest that an example may take, on a machine that is busy, too; they take a millisecond."""

EXAMPLES = 652

EXPECTED = {"25, Entity and numeric character references": "names of references that nobody writes stay as they are"}
"""Examples that fail, and why: one that holds fails the test, too."""


class Drawing:
    """The program that draws examples, and its output."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self.program = program
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.program.stdout is not None
        for line in self.program.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def read_line(self) -> dict[str, Any] | None:
        """Return the next line, None at the end; raise queue.Empty when none comes in time."""
        line = self._lines.get(timeout=DRAWN_S)
        return None if line is None else json.loads(line)


@contextmanager
def drawing(examples: str, first: int) -> Generator[Drawing]:
    packages = find_npm_environment("markdown", HERE / "package.json")
    command = [str(NODE), str(HERE / "draw.mjs"), str(packages), str(MODULE), examples, str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            yield Drawing(program)
        finally:
            program.kill()


def judge(examples: str = "") -> dict[str, str]:
    """Draw the examples of a file or of the specification; return the problems, none for those that pass."""
    problems: dict[str, str] = {}
    is_over = False
    while not is_over:
        with drawing(examples, len(problems)) as program:
            name = ""
            try:
                while (line := program.read_line()) is not None:
                    name = line.get("begins", name)
                    if "missing" in line:
                        problems[name] = f"not shown: {' '.join(line['missing'])}" if line["missing"] else ""
                assert program.program.wait() == 0
                is_over = True
            except queue.Empty:
                assert name, "the program did not begin"
                problems[name] = "it does not end"
    return problems


def test_each_example_finishes_and_shows_its_text() -> None:
    problems = judge()
    assert len(problems) == EXAMPLES
    wrong = {name: problem for name, problem in problems.items() if problem}
    assert {name: problem for name, problem in wrong.items() if name not in EXPECTED} == {}
    assert EXPECTED.keys() - wrong.keys() == set(), "these hold now: take them off the list"


@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.nightly)])
def test_text_in_pieces_renders_like_the_whole_text(count: int) -> None:
    packages = find_npm_environment("markdown", HERE / "package.json")
    command = [str(NODE), str(HERE / "fuzz.mjs"), str(packages), str(MODULE), str(count), "46"]
    assert subprocess.run(command, check=True, capture_output=True, text=True, timeout=1200).stdout == ""


@pytest.mark.parametrize(
    ("file", "published", "added"),
    [
        ("marked.js", "marked/lib/marked.esm.js", ""),
        ("highlight.js", "@highlightjs/cdn-assets/es/highlight.min.js", ""),
        ("temml.js", "temml/dist/temml.min.js", "\nexport default temml;"),
        ("uplot.js", "uplot/dist/uPlot.iife.min.js", "\nexport default uPlot;"),
    ],
)
def test_the_vendored_libraries_equal_the_published_ones(file: str, published: str, added: str) -> None:
    packages = find_npm_environment("markdown", HERE / "package.json")
    text = (packages / "node_modules" / published).read_text().partition("//# sourceMappingURL")[0].strip() + added
    assert MODULE.parents[1].joinpath("vendor", file).read_text().strip() == text, "copy it: its version has changed"
