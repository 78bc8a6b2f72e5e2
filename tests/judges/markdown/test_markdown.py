"""The console's Markdown, judged by the examples of CommonMark's specification: each is drawn within a bound, and what
its reference shows is shown. How it looks is not judged.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.judges.environments import NODE, ROOT, find_npm_environment

HERE = Path(__file__).parent
MODULE = ROOT / "services/facade/console/static/markdown/markdown.js"

DRAWN_S = 4.0
"""The longest that an example may take, on a machine that is busy, too; they take a millisecond."""

EXAMPLES = 652

_OWNED = "owned by 'Other people's programs', kind E"

EXPECTED = {
    "25, Entity and numeric character references": f"{_OWNED}: no character references",
    "26, Entity and numeric character references": f"{_OWNED}: no character references",
    "27, Entity and numeric character references": f"{_OWNED}: no character references",
    "161, HTML blocks": f"{_OWNED}: a fence in an HTML block begins code, whose language is not shown",
    "285, List items": f"{_OWNED}: a mark without text begins an item within a paragraph",
    "304, Lists": f"{_OWNED}: a number that is not 1 begins a list in a paragraph",
    "313, Lists": f"{_OWNED}: four spaces begin an item in place of code",
    "342, Code spans": f"{_OWNED}: a link is found before code",
    "417, Emphasis and strong emphasis": f"{_OWNED}: marks within marks are not matched by their lengths",
    "480, Emphasis and strong emphasis": f"{_OWNED}: emphasis is found before addresses",
    "481, Emphasis and strong emphasis": f"{_OWNED}: emphasis is found before addresses",
    "493, Links": f"{_OWNED}: an escaped > ends a link's target",
    "512, Links": f"{_OWNED}: brackets in a link's text never end",
    "525, Links": f"{_OWNED}: code and addresses do not end a link's text",
    "526, Links": f"{_OWNED}: code and addresses do not end a link's text",
    "570, Links": f"{_OWNED}: no reference links",
}
"""Examples that fail today, and why: one that holds fails the test, too."""


class Drawing:
    """The program that draws examples, and what it prints."""

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
        """The next line, nothing at the end; raises queue.Empty when there is none in time."""
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
    """Draw examples of a file, or those of the specification; returns what is wrong, nothing for those that hold."""
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


def test_each_example_ends_and_shows_its_text() -> None:
    problems = judge()
    assert len(problems) == EXAMPLES
    wrong = {name: problem for name, problem in problems.items() if problem}
    assert {name: problem for name, problem in wrong.items() if name not in EXPECTED} == {}
    assert EXPECTED.keys() - wrong.keys() == set(), "these hold now: take them off the list"
