"""The kinds of files a report can be, and how each is made from the same Markdown.

The libraries for PDF and slides are imported when such a file is wanted, in its thread: they take a tenth of a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from services.tools.documents.blocks import Heading, parse_blocks, plain
from services.tools.documents.html import to_html

TITLE_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class FileType:
    """One kind of file."""

    suffix: str
    make: Callable[[str, str], bytes]
    """From Markdown and a title."""


def _to_markdown(text: str, title: str) -> bytes:
    del title
    return text.encode()


def _to_pdf(text: str, title: str) -> bytes:
    from services.tools.documents.pdf import to_pdf

    return to_pdf(text, title)


def _to_slides(text: str, title: str) -> bytes:
    from services.tools.documents.slides import to_slides

    return to_slides(text, title)


FILE_TYPES: Mapping[str, FileType] = {
    "html": FileType("html", to_html),
    "markdown": FileType("md", _to_markdown),
    "ppt": FileType("pptx", _to_slides),
    "pdf": FileType("pdf", _to_pdf),
}
"""By the word that the model says."""


@dataclass(frozen=True, slots=True)
class Made:
    """A file's bytes."""

    data: bytes
    missing: int = 0
    """Characters that it cannot show."""


async def make_file(text: str, kind: str) -> Made:
    """The file; made in a thread: a long PDF takes seconds."""
    return await asyncio.to_thread(_make, text, kind)


def _make(text: str, kind: str) -> Made:
    data = FILE_TYPES[kind].make(text, _title(text))
    return Made(data, _missing(text) if kind == "pdf" else 0)


def _missing(text: str) -> int:
    from services.tools.documents import fonts

    return fonts.missing(text)


def _title(text: str) -> str:
    headings = (plain(block.spans) for block in parse_blocks(text) if isinstance(block, Heading))
    return next(headings, "Report")[:TITLE_CHARS_MAX]
