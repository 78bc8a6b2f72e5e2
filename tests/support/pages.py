"""The pages of the manual, as tests read them."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
"""Every page that a reader may come to."""

BLOCK = re.compile(r"^```(?P<form>\S*)[ ]?(?P<use>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def read_page(name: str) -> str:
    return (REFERENCE / name).read_text()


def read_section(page: str, anchor: str) -> str:
    """Return the text below the heading with this anchor, up to the next heading."""
    pieces = re.split(r"^(#+ .+)$", page, flags=re.MULTILINE)
    sections = {to_anchor(heading.lstrip("# ")): body for heading, body in zip(pieces[1::2], pieces[2::2], strict=True)}
    return sections[anchor]


def list_anchors(text: str) -> set[str]:
    """The anchors of a page's headings."""
    return {to_anchor(heading) for heading in _HEADING.findall(BLOCK.sub("", text))}


def to_anchor(heading: str) -> str:
    """The anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


GUIDES = ROOT / "docs" / "guides"


class Block(NamedTuple):
    form: str
    """The word of the fence: sh, python, js, go, json, text."""

    use: str
    text: str


def list_blocks(page: Path) -> list[Block]:
    return [Block(found["form"], found["use"].strip(), found["text"]) for found in BLOCK.finditer(page.read_text())]


def find_missing_line(output: str, expected: str) -> str | None:
    """Return the first line of `expected` that is missing from the output, in this order; … matches anything."""
    lines = iter(output.splitlines())
    for wanted in expected.splitlines():
        pattern = ".*".join(re.escape(piece) for piece in re.split(r"\s*…\s*", wanted))
        if not any(re.fullmatch(pattern, line.strip()) for line in lines):
            return wanted
    return None


def check_output(output: str, expected: str) -> None:
    """Assert that the output has the expected lines in this order."""
    missing = find_missing_line(output, expected)
    assert missing is None, f"no line {missing!r} in:\n{output}"


class Request(NamedTuple):
    """What a curl command line asks."""

    url: str
    headers: dict[str, str]
    body: str | None
    files: dict[str, str]
    """Paths by the form's fields."""


def read_curl(command: str) -> Request:
    """Parse a curl command with -H, -d and -F file=@…; curl itself need not be installed."""
    _, *words = shlex.split(command.replace("\\\n", ""))
    url, headers, body, files = "", dict[str, str](), None, dict[str, str]()
    while words:
        match words.pop(0):
            case "-s" | "-N":
                pass
            case "-H":
                name, _, value = words.pop(0).partition(": ")
                headers[name] = value
            case "-d":
                body = words.pop(0)
            case "-F":
                name, _, files[name] = words.pop(0).partition("=@")
            case word:
                url = word
    return Request(url, headers, body, files)
