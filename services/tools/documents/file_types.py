"""The file types of reports, and the web page: one HTML file without scripts that loads nothing from elsewhere.

Libraries for PDF and slides take 0.1 s to import, so that is deferred.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import unquote

from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from services.tools.documents.blocks import Table, join_text, make_parser
from services.tools.documents.report import ReadFile, Report, make_report, read_nothing
from services.tools.errors import ToolFailed

SUFFIXES = {"html": "html", "markdown": "md", "ppt": "pptx", "pdf": "pdf"}
"""Suffix of a file, by its kind."""

# The policy protects readers that open the file from a trusted origin: whatever got in, nothing runs or loads.
PAGE = """<!doctype html>
<html>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ max-width: 46rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.6 system-ui, sans-serif; color: #222; }}
h1, h2, h3 {{ line-height: 1.25; color: #1f5f8b; }}
h1 {{ color: #1f2933; border-bottom: 2px solid #1f5f8b; padding-bottom: 0.3rem; }}
table {{ border-collapse: collapse; width: 100%; font-size: 0.92rem; }}
td, th {{ border-bottom: 1px solid #d5dce1; padding: 0.35rem 0.6rem; text-align: left; }}
th {{ background: #1f5f8b; color: #fff; }}
tr:nth-child(even) td {{ background: #f4f7f9; }}
img {{ max-width: 100%; display: block; margin: 1rem auto; }}
pre, code {{ font-family: ui-monospace, monospace; background: #f4f7f9; }}
pre {{ padding: 0.8rem; overflow-x: auto; border-left: 3px solid #1f5f8b; }}
blockquote {{ margin-left: 0; padding-left: 1rem; border-left: 3px solid #ccc; color: #555; }}
</style>
</head>
<body>
{body}</body>
</html>
"""


def render_html(report: Report) -> bytes:
    parser = make_parser()
    parser.add_render_rule("image", _render_image)
    body = parser.render(report.text, {"report": report})
    return PAGE.format(title=escape(report.title), body=body).encode()


def _render_image(self: RendererHTML, tokens: list[Token], at: int, options: Any, env: Any) -> str:
    del self, options
    image = tokens[at]
    address = str(image.attrs.get("src", ""))
    report: Report = env["report"]
    path = unquote(address).removeprefix("./")
    if (picture := report.pictures.get(path)) is not None:
        kind = "jpeg" if picture.startswith(b"\xff\xd8") else "png"
        data = base64.b64encode(picture).decode()
        return f'<img alt="{escape(image.content)}" src="data:image/{kind};base64,{data}">'
    if (table := report.tables.get(path)) is not None:
        return "".join(_write_table(table, image.content))
    # A link does not tell the image's server who opens the report.
    return f'<a href="{escape(address)}" rel="noreferrer">{escape(image.content or address)}</a>'


def _write_table(table: Table, caption: str) -> Iterator[str]:
    yield f"<table><caption>{escape(caption)}</caption>"
    for number, row in enumerate(table.rows):
        tag = "td" if number else "th"
        cells = zip(row, table.alignments, strict=True)
        yield "".join(
            f'<{tag} style="text-align:{side}">{escape(join_text(cell))}</{tag}>' for cell, side in cells
        ).join(("<tr>", "</tr>"))
    yield "</table>"


@dataclass(frozen=True, slots=True)
class RenderedFile:
    data: bytes
    missing_chars: int
    unplaced: tuple[str, ...]
    """Paths that the text places but that are not a picture or CSV file of the chat."""


async def render_file(text: str, kind: str, read: ReadFile = read_nothing) -> RenderedFile:
    """Render in a thread, because a long PDF takes seconds.

    Raises:
        ToolFailed: No font has its letters, or the kind's library is not installed.
    """

    def render() -> RenderedFile:
        report, missing_chars = make_report(text, read), 0
        match kind:
            case "html":
                data = render_html(report)
            case "ppt":
                from services.tools.documents.slides import render_slides

                data = render_slides(report)
            case "pdf":
                from services.tools.documents.pdf import render_pdf

                data, missing_chars = render_pdf(report)
            case _:
                data = report.text.encode()
        return RenderedFile(data, missing_chars, report.unplaced)

    try:
        return await asyncio.to_thread(render)
    except ImportError as error:
        raise ToolFailed(
            f"EXTRA_MISSING: {error.name} is not installed: pip install 'headrace[documents]' for {kind} files; html "
            "and markdown need nothing"
        ) from error
