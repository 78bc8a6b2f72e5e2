"""Kinds of files that a report can be.

Libraries for PDF and slides take 0.1 s to import, so that is put off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from services.tools.documents.html import render_html
from services.tools.documents.report import ReadFile, Report, make_report, read_nothing


@dataclass(frozen=True, slots=True)
class FileType:
    suffix: str
    render: Callable[[Report], tuple[bytes, int]]
    """Returns the file, and how many characters it cannot show."""


def _to_pdf(report: Report) -> tuple[bytes, int]:
    from services.tools.documents.pdf import render_pdf

    return render_pdf(report)


def _to_slides(report: Report) -> tuple[bytes, int]:
    from services.tools.documents.slides import render_slides

    return render_slides(report), 0


FILE_TYPES: Mapping[str, FileType] = {
    "html": FileType("html", lambda report: (render_html(report), 0)),
    "markdown": FileType("md", lambda report: (report.text.encode(), 0)),
    "ppt": FileType("pptx", _to_slides),
    "pdf": FileType("pdf", _to_pdf),
}


@dataclass(frozen=True, slots=True)
class RenderedFile:
    data: bytes
    missing_chars: int
    unplaced: tuple[str, ...]
    """Paths that the text places and that are no picture or CSV file of the chat."""


async def render_file(text: str, kind: str, read: ReadFile = read_nothing) -> RenderedFile:
    """Renders in a thread, because a long PDF takes seconds. Raises ToolFailed when no font has its words."""
    return await asyncio.to_thread(_render_blocking, text, kind, read)


def _render_blocking(text: str, kind: str, read: ReadFile) -> RenderedFile:
    report = make_report(text, read)
    data, missing_chars = FILE_TYPES[kind].render(report)
    return RenderedFile(data, missing_chars, report.unplaced)
