"""Splits a report into slides: each heading begins one, `#` the title slide; overflow continues on the next one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from services.tools.documents.blocks import (
    BULLET,
    Block,
    Code,
    Heading,
    Item,
    Paragraph,
    Picture,
    Span,
    Table,
    count_width,
    join_text,
    share_width,
    wrap_code,
)

LINES_MAX = 12
"""Lines that fit a slide."""

LINE_COLUMNS = 84
"""Characters that fit a line; half of them with a picture next to the text."""

CHARS_MAX = LINES_MAX * LINE_COLUMNS * 3 // 4

CODE_LINES_MAX, CODE_COLUMNS = 16, 100

ROWS_MAX = 11
"""Rows of a table that fit a slide below its head; rows of several lines count for more."""

CELL_COLUMNS = 110
"""Characters that fit the width in a table's smaller text."""

COLUMNS_MAX = 12
"""A wider table is written as lines."""

LINES_ABOVE_TABLE_MAX, LINES_BESIDE_PICTURE_MAX = 3, 9
LEVELS_MAX = 4
SUBTITLE_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class Line:
    spans: tuple[Span, ...]
    level: int = 0
    """0 for a paragraph, 1 and more for an item of a list."""

    number: int = 0
    """Number of an item in a numbered list; 0 for any other."""

    is_quote: bool = False

    def count_lines(self, columns: int) -> int:
        return max(1, math.ceil(count_width(join_text(self.spans)) / (columns - 4 * self.level)))


@dataclass(slots=True)
class Slide:
    title: str
    lines: list[Line] = field(default_factory=list[Line])
    figure: Picture | Table | Code | None = None
    """Shown next to or below the lines."""

    def count_lines(self, columns: int = LINE_COLUMNS) -> int:
        return sum(line.count_lines(columns) for line in self.lines)

    def has_room_for(self, line: Line) -> bool:
        lines = self.count_lines() + line.count_lines(LINE_COLUMNS)
        return self.figure is None and (not self.lines or lines <= LINES_MAX)

    def has_room_for_figure(self, figure: Picture | Table | Code) -> bool:
        if self.figure is not None:
            return False
        if isinstance(figure, Picture):
            return self.count_lines(LINE_COLUMNS // 2) <= LINES_BESIDE_PICTURE_MAX
        return self.count_lines() <= LINES_ABOVE_TABLE_MAX


def split_slides(blocks: tuple[Block, ...], title: str) -> Iterator[Slide]:
    """Yield the slides; the first is the title slide and has only short lines."""
    slide, is_first = Slide(title), True
    for block in blocks:
        if isinstance(block, Heading):
            name = join_text(block.spans)
            if is_first and block.level == 1 and not slide.lines:
                slide.title = name
            else:
                yield slide
                slide, is_first = Slide(name), False
            continue
        if isinstance(block, Picture | Code) or (isinstance(block, Table) and len(block.rows[0]) <= COLUMNS_MAX):
            for figure in _split_figure(block, len(slide.lines)):
                if is_first or not slide.has_room_for_figure(figure):
                    yield slide
                    slide, is_first = Slide(slide.title), False
                slide.figure = figure
            continue
        for line in _make_lines(block):
            is_long = len(join_text(line.spans)) > SUBTITLE_CHARS_MAX
            if (is_first and (is_long or line.level)) or not slide.has_room_for(line):
                yield slide
                slide, is_first = Slide(slide.title), False
            slide.lines.append(line)
    yield slide


def _split_figure(figure: Picture | Table | Code, lines_above: int) -> Iterator[Picture | Table | Code]:
    match figure:
        case Picture():
            yield figure
        case Code(text=text):
            lines = [part for line in text.splitlines() or [""] for part in wrap_code(line, CODE_COLUMNS)]
            room = CODE_LINES_MAX - 2 * lines_above
            for start in range(0, len(lines), room):
                yield Code("\n".join(lines[start : start + room]))
        case Table():
            yield from _split_table(figure, ROWS_MAX - 2 * min(lines_above, LINES_ABOVE_TABLE_MAX))


def _split_table(table: Table, room: int) -> Iterator[Table]:
    head, *rows = table.rows
    widths = share_width(table, CELL_COLUMNS)
    part, used = list[tuple[tuple[Span, ...], ...]](), 0
    for row in rows:
        cells = zip(row, widths, strict=True)
        lines = max(1, *(math.ceil(count_width(join_text(cell)) / width) for cell, width in cells))
        if part and used + lines > room:
            yield replace(table, rows=(head, *part))
            part, used, room = [], 0, ROWS_MAX
        part.append(row)
        used += lines
    yield replace(table, rows=(head, *part))


def _make_lines(block: Block) -> Iterator[Line]:
    match block:
        case Paragraph(spans=spans, is_quote=is_quote):
            yield from (replace(line, is_quote=is_quote) for line in _split_paragraph(spans, 0))
        case Item(depth=depth, mark=mark, spans=spans):
            number = 0 if mark in ("", BULLET) else int(mark.rstrip("."))
            lines = _split_paragraph(spans, min(depth + 1, LEVELS_MAX))
            yield from (replace(line, number=number) for line in lines)
        case Table(rows=rows):
            for row in rows:
                yield Line((Span(" | ".join(join_text(cell) for cell in row)[:CHARS_MAX]),))
        case _:
            raise AssertionError("headings begin slides, and figures stand by themselves")


def _split_paragraph(spans: tuple[Span, ...], level: int) -> Iterator[Line]:
    text = join_text(spans)
    if count_width(text) <= CHARS_MAX:
        yield Line(spans, level)
        return
    chars = CHARS_MAX * len(text) // count_width(text)
    for start in range(0, len(text), chars):
        yield Line((Span(text[start : start + chars]),), level)
