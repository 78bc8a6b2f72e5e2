"""Splits Markdown into blocks for slides and pages, and measures their text in character columns."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from services.tools.documents.emphasis import add_emphasis

CHARS_MIN, CHARS_MAX = 3, 40
"""Bounds of the length that counts, so that a long text leaves room for short ones."""

PADDING_CHARS = 4
"""Room around the text of a cell."""

TAB_COLUMNS = 4


@dataclass(frozen=True, slots=True)
class Span:
    text: str
    bold: bool = False
    italic: bool = False
    code: bool = False
    link: str = ""


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; level 1 is the title."""

    level: int
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Paragraph:
    spans: tuple[Span, ...]
    is_quote: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture in its own paragraph."""

    path: str
    """A file of the chat, or an address, as written in the Markdown."""

    caption: str


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a list: depth 0 is outermost, and a numbered item's mark is its number."""

    depth: int
    mark: str
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Code:
    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table; its first row is the head."""

    rows: tuple[tuple[tuple[Span, ...], ...], ...]

    alignments: tuple[str, ...] = ()
    """Alignment of each column: left, center or right."""


Block: TypeAlias = Heading | Paragraph | Picture | Item | Code | Table

BULLET = "•"


def make_parser() -> MarkdownIt:
    """Create a parser without raw HTML, which also refuses links to scripts."""
    return add_emphasis(MarkdownIt("commonmark", {"html": False}).enable("table"))


def parse_blocks(text: str) -> list[Block]:
    """Split `text` into blocks; quotes become their paragraphs, and rules are dropped."""
    return list(_walk_blocks(SyntaxTreeNode(make_parser().parse(text)), depth=0))


def join_text(spans: tuple[Span, ...]) -> str:
    return "".join(span.text for span in spans)


def _walk_blocks(node: SyntaxTreeNode, depth: int, *, is_quote: bool = False) -> Iterator[Block]:
    for child in node.children:
        match child.type:
            case "heading":
                yield Heading(int(child.tag[1:]), _parse_inline(child))
            case "paragraph":
                inline = [part for node in child.children for part in node.children]
                if len(inline) == 1 and inline[0].type == "image":  # a picture on its own
                    yield Picture(str(inline[0].attrs.get("src", "")), inline[0].content)
                else:
                    yield Paragraph(_parse_inline(child), is_quote)
            case "blockquote":
                yield from _walk_blocks(child, depth, is_quote=True)
            case "bullet_list" | "ordered_list":
                yield from _walk_items(child, depth)
            case "fence" | "code_block":
                yield Code(child.content.rstrip("\n"))
            case "table":
                rows = (row for part in child.children for row in part.children)
                cells = [row.children for row in rows]
                alignments = tuple(str(cell.attrs.get("style", "text-align:left"))[11:] for cell in cells[0])
                yield Table(tuple(tuple(_parse_inline(cell) for cell in row) for row in cells), alignments)
            case _:
                yield from _walk_blocks(child, depth, is_quote=is_quote)


def _walk_items(node: SyntaxTreeNode, depth: int) -> Iterator[Block]:
    first = int(node.attrs.get("start", 1))
    for number, item in enumerate(node.children, start=first):
        mark = BULLET if node.type == "bullet_list" else f"{number}."
        for block in _walk_blocks(item, depth + 1):
            if isinstance(block, Paragraph):
                yield Item(depth, mark, block.spans)
                mark = ""  # a second paragraph of the same item
            else:
                yield block


def _parse_inline(node: SyntaxTreeNode) -> tuple[Span, ...]:
    return tuple(span for child in node.children for span in _walk_spans(child, Span("")))


def _walk_spans(node: SyntaxTreeNode, look: Span) -> Iterator[Span]:
    bold, italic, link = look.bold or node.type == "strong", look.italic or node.type == "em", look.link
    if node.type == "link":
        link = str(node.attrs.get("href", ""))
    match node.type:
        case "text" | "html_inline":
            yield Span(node.content, bold, italic, link=link)
        case "code_inline":
            yield Span(node.content, bold, italic, code=True, link=link)
        case "softbreak" | "hardbreak":
            yield Span("\n" if node.type == "hardbreak" else " ", bold, italic, link=link)
        case "image":
            yield Span(node.content or "image", bold, italic, link=str(node.attrs.get("src", "")))
        case _:
            for child in node.children:
                yield from _walk_spans(child, Span("", bold, italic, link=link))


def share_width(table: Table, width: float) -> list[float]:
    """Return the columns' widths, proportional to their longest texts within limits."""
    columns = zip(*table.rows, strict=True)
    lengths = [
        max(min(max(count_width(join_text(cell)), CHARS_MIN), CHARS_MAX) + PADDING_CHARS for cell in column)
        for column in columns
    ]
    return [width * length / sum(lengths) for length in lengths]


def count_width(text: str) -> int:
    """Count characters; wide ones count twice."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def wrap_code(line: str, columns: int) -> list[str]:
    """Cut a line of code where it is full."""
    parts, used = [""], 0
    for letter in line.expandtabs(TAB_COLUMNS):
        wide = count_width(letter)
        if used + wide > columns:
            parts.append("")
            used = 0
        parts[-1] += letter
        used += wide
    return parts
