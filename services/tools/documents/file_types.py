"""Kinds of files that a report can be.

Libraries for PDF and slides take 0.1 s to import, so that is put off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from services.tools.documents.blocks import Heading, join_text, parse_blocks
from services.tools.documents.html import render_html

TITLE_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class FileType:
    suffix: str
    render: Callable[[str, str], bytes]


def _to_pdf(text: str, title: str) -> bytes:
    from services.tools.documents.pdf import render_pdf

    return render_pdf(text, title)


def _to_slides(text: str, title: str) -> bytes:
    from services.tools.documents.slides import render_slides

    return render_slides(text, title)


FILE_TYPES: Mapping[str, FileType] = {
    "html": FileType("html", render_html),
    "markdown": FileType("md", lambda text, title: text.encode()),
    "ppt": FileType("pptx", _to_slides),
    "pdf": FileType("pdf", _to_pdf),
}


@dataclass(frozen=True, slots=True)
class RenderedFile:
    data: bytes
    missing_chars: int = 0


async def render_file(text: str, kind: str) -> RenderedFile:
    """Renders in a thread, because a long PDF takes seconds."""
    return await asyncio.to_thread(_render_blocking, text, kind)


def _render_blocking(text: str, kind: str) -> RenderedFile:
    headings = (join_text(block.spans) for block in parse_blocks(text) if isinstance(block, Heading))
    data = FILE_TYPES[kind].render(text, next(headings, "Report")[:TITLE_CHARS_MAX])
    if kind != "pdf":
        return RenderedFile(data)
    from services.tools.documents import fonts

    return RenderedFile(data, fonts.count_missing(text))
