"""A report's parts, with the chat's files that it places: pictures, and CSV files as tables."""

from __future__ import annotations

import csv
import io
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from urllib.parse import unquote

from services.runtime.tokens.image_size import image_size
from services.tools.documents.blocks import (
    Block,
    Heading,
    Item,
    Paragraph,
    Picture,
    Span,
    Table,
    join_text,
    parse_blocks,
)
from services.tools.workspace.content_types import detect_content_charset

TITLE_CHARS_MAX = 200

PLACED_MAX = 40
FILE_BYTES_MAX = 16 * 1024 * 1024
PIXELS_MAX = 40_000_000
SIDE_PX_MAX = 2000
"""Maximum side of a placed picture: 200 dots per inch over a page."""

ROWS_MAX, COLUMNS_MAX = 500, 12
"""Maximum part of a CSV file that becomes a table."""

FORMATS = ("PNG", "JPEG", "GIF", "WEBP")
PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
PLACEABLE = (*PICTURES, ".csv")
"""Suffixes of files that can be placed."""

ReadFile = Callable[[str, int], bytes | None]
"""Returns the file's bytes; None if it does not exist or exceeds the given number of bytes."""


@dataclass(frozen=True, slots=True)
class Report:
    text: str
    """As it was written."""

    title: str
    blocks: tuple[Block, ...]
    pictures: Mapping[str, bytes]
    """Placed pictures as PNG or JPEG, by path."""

    tables: Mapping[str, Table]
    """Placed CSV files by path; they are blocks as well."""

    unplaced: tuple[str, ...]
    """Paths that are named but could not be placed."""

    def list_texts(self) -> Iterator[str]:
        """Yield every text that readers see."""
        yield self.title
        for block in self.blocks:
            match block:
                case Heading(spans=spans) | Paragraph(spans=spans):
                    yield join_text(spans)
                case Item(mark=mark, spans=spans):
                    yield mark + join_text(spans)
                case Picture(path=path, caption=caption):
                    yield caption or path
                case Table(rows=rows):
                    yield from (join_text(cell) for row in rows for cell in row)
                case _:
                    yield block.text


def make_report(text: str, read: ReadFile) -> Report:
    blocks, unplaced = list[Block](), list[str]()
    pictures, tables = dict[str, bytes](), dict[str, Table]()
    for block in parse_blocks(text):
        placed = block
        if isinstance(block, Picture):
            placed = _place_file(
                block,
                read if len(pictures) + len(tables) + len(unplaced) < PLACED_MAX else read_nothing,
                pictures,
                tables,
            )
            if placed is None:
                unplaced.append(block.path)
                placed = Paragraph((Span(block.caption or block.path, italic=True, link=block.path),))
        if isinstance(block, Picture) and isinstance(placed, Table) and block.caption:
            blocks.append(Paragraph((Span(block.caption, italic=True),)))
        blocks.append(placed)
    headings = (join_text(block.spans) for block in blocks if isinstance(block, Heading))
    title = next(headings, "Report")[:TITLE_CHARS_MAX]
    return Report(text, title, tuple(blocks), pictures, tables, tuple(unplaced))


def read_nothing(path: str, bytes_max: int) -> None:
    """Return no file: for a report without a chat, or after the last file is placed."""


def _place_file(picture: Picture, read: ReadFile, pictures: dict[str, bytes], tables: dict[str, Table]) -> Block | None:
    path = unquote(picture.path).removeprefix("./")
    if not path.lower().endswith(PLACEABLE):
        return None
    if path in tables:
        return tables[path]
    if path not in pictures:
        data = read(path, FILE_BYTES_MAX)
        if data is None:
            return None
        if path.lower().endswith(".csv"):
            if (table := _read_table(data)) is not None:
                tables[path] = table
            return table
        if (made := shrink_picture(data)) is None:
            return None
        pictures[path] = made
    return replace(picture, path=path)


def _read_table(data: bytes) -> Table | None:
    if (charset := detect_content_charset(data)) is None:
        return None
    text = charset.decode(data).encode(errors="replace").decode()
    try:
        dialect: type[csv.Dialect] | str = csv.Sniffer().sniff(text[:4096], ",;\t|")
    except csv.Error:
        dialect = "excel"
    try:
        rows = [
            row[:COLUMNS_MAX] for row, _ in zip(csv.reader(io.StringIO(text), dialect), range(ROWS_MAX), strict=False)
        ]
    except csv.Error:
        return None
    rows = [row for row in rows if row]
    width = max(map(len, rows), default=0)
    if not width:
        return None
    cells = tuple(tuple((Span(cell),) for cell in [*row, *[""] * (width - len(row))]) for row in rows)
    return Table(cells, tuple("right" if _is_numeric(rows, column) else "left" for column in range(width)))


def _is_numeric(rows: list[list[str]], column: int) -> bool:
    values = [row[column] for row in rows[1:] if column < len(row) and row[column]]
    return bool(values) and all(value.replace(",", "").lstrip("+-").replace(".", "", 1).isdecimal() for value in values)


def shrink_picture(data: bytes) -> bytes | None:
    """Return the picture as a PNG or JPEG of bounded size; None if it is not a picture."""
    from PIL import Image, ImageOps  # 0.1 s

    size = image_size(data)
    if size is not None and size[0] * size[1] > PIXELS_MAX:
        return None  # before Pillow, which has another limit and raises or warns there
    made = io.BytesIO()
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            if picture.width * picture.height > PIXELS_MAX:
                return None
            kind = "JPEG" if picture.format == "JPEG" else "PNG"
            upright = ImageOps.exif_transpose(picture).convert("RGB" if kind == "JPEG" else "RGBA")
            upright.thumbnail((SIDE_PX_MAX, SIDE_PX_MAX))
            upright.save(made, format=kind, quality=90)
    except (OSError, SyntaxError, ValueError, EOFError, struct.error):
        return None
    return made.getvalue()
