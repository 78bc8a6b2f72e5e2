"""The kinds of files a report can be, and how each is made from the same Markdown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from services.tools.documents import fonts
from services.tools.documents.blocks import Heading, parse_blocks, plain
from services.tools.documents.html import to_html
from services.tools.documents.pdf import to_pdf
from services.tools.documents.slides import to_slides

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


FILE_TYPES: Mapping[str, FileType] = {
    "html": FileType("html", to_html),
    "markdown": FileType("md", _to_markdown),
    "ppt": FileType("pptx", to_slides),
    "pdf": FileType("pdf", to_pdf),
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
    return Made(data, fonts.missing(text) if kind == "pdf" else 0)


def _title(text: str) -> str:
    headings = (plain(block.spans) for block in parse_blocks(text) if isinstance(block, Heading))
    return next(headings, "Report")[:TITLE_CHARS_MAX]
