"""`python -m trials cluster` follows the pages of docs/operating, and leaves no command untested."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from trials.cluster.pages import NOT_FOLLOWED, PAGE_NAMES, Step, as_pattern, read_sections

CLUSTER = Path(__file__).parents[2] / "trials" / "cluster"


def list_followed() -> Iterator[tuple[str, str]]:
    """Yield page and section of each `follow("page", "section")` of the checks."""
    for file in CLUSTER.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "follow":
                page, section = (argument.value for argument in node.args if isinstance(argument, ast.Constant))
                yield str(page), str(section)


def test_every_command_of_the_pages_is_followed_by_a_check() -> None:
    written = {(page, section) for page in PAGE_NAMES for section in read_sections(page)}
    assert {*list_followed()} | NOT_FOLLOWED.keys() == written
    assert NOT_FOLLOWED.keys().isdisjoint(list_followed())


@pytest.mark.parametrize("page", PAGE_NAMES)
def test_every_page_shows_expected_output(page: str) -> None:
    steps = [step for section in read_sections(page).values() for step in section]
    assert any(step.seen for step in steps)


def test_expected_output_is_matched_in_order_ignoring_column_widths() -> None:
    pattern = as_pattern("NAME…READY\npod/a created\nrolled out at …")
    assert pattern.search("NAME      AGE   READY\nother\npod/a   created\nrolled out at 7")
    assert pattern.search("pod/a created\nNAME READY\nrolled out at 7") is None


def test_a_step_has_commands_and_their_expected_output() -> None:
    (build, *_) = read_sections("install.md")["The image"]
    assert build.commands.startswith("docker build -t registry.example/headrace:")
    first, *_ = read_sections("when-it-breaks.md")["First"]
    assert isinstance(first, Step)
    assert first.seen.startswith("NAME")
