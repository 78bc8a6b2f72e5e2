"""A PDF from Markdown, by reportlab."""

from __future__ import annotations

import io
from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.platypus import Flowable, SimpleDocTemplate, Spacer
from reportlab.platypus import Paragraph as Text
from reportlab.platypus import Table as Grid

from services.tools.documents import fonts
from services.tools.documents.blocks import Block, Code, Heading, Item, Paragraph, Span, Table, parse_blocks, plain

MARGIN = 20 * mm
SIZE, LEADING = 10.5, 15

COLUMNS_MAX = 12
"""A wider table has no room for a word in its cells, and is written as lines."""

BODY = ParagraphStyle("body", fontName="Helvetica", fontSize=SIZE, leading=LEADING, spaceAfter=6)
CODE = ParagraphStyle(
    "code", BODY, fontName="Courier", fontSize=9, leading=12, spaceAfter=0, backColor=colors.whitesmoke
)
HEADINGS = {
    level: ParagraphStyle(
        f"h{level}", BODY, fontName="Helvetica-Bold", fontSize=size, leading=size * 1.3, spaceBefore=10
    )
    for level, size in {1: 20, 2: 15, 3: 12.5, 4: 11, 5: 11, 6: 11}.items()
}
GRID = [("GRID", (0, 0), (-1, -1), 0.5, colors.lightgrey), ("VALIGN", (0, 0), (-1, -1), "TOP")]


def to_pdf(text: str, title: str) -> bytes:
    """The file. Characters that no font has are shown as fonts.MISSING."""
    fonts.register()
    file = io.BytesIO()
    document = SimpleDocTemplate(
        file,
        pagesize=A4,
        title=title,
        **dict.fromkeys(("leftMargin", "rightMargin", "topMargin", "bottomMargin"), MARGIN),
    )
    flow = [flowable for block in parse_blocks(text) for flowable in _flowables(block)]
    document.build(flow or [Spacer(0, 1)])
    return file.getvalue()


def _flowables(block: Block) -> Iterator[Flowable]:
    match block:
        case Heading(level=level, spans=spans):
            yield _text(spans, HEADINGS[level])
        case Paragraph(spans=spans):
            yield _text(spans, BODY)
        case Item(depth=depth, mark=mark, spans=spans):
            indent = 14 * (depth + 1)
            style = ParagraphStyle("item", BODY, leftIndent=indent, bulletIndent=indent - 12, spaceAfter=2)
            yield Text(_markup(spans), _wrapping(style, spans), bulletText=mark or None)
        case Code(text=text):
            # One paragraph for each line: a block that is longer than a page has to break.
            for line in text.splitlines():
                kept = line.replace("\t", "    ").replace(" ", "\u00a0")
                yield _text((Span(kept),), CODE)
            yield Spacer(0, 6)
        case Table(rows=rows):
            yield from _table(rows)


def _table(rows: tuple[tuple[tuple[Span, ...], ...], ...]) -> Iterator[Flowable]:
    if len(rows[0]) > COLUMNS_MAX:
        for row in rows:
            yield _text((Span(" | ".join(plain(cell) for cell in row)),), BODY)
        return
    width = (A4[0] - 2 * MARGIN) / len(rows[0])
    cells = [[_text(cell, BODY) for cell in row] for row in rows]
    yield Spacer(0, 4)
    yield Grid(cells, colWidths=[width] * len(rows[0]), style=GRID, repeatRows=1, splitInRow=1)
    yield Spacer(0, 8)


def _text(spans: tuple[Span, ...], style: ParagraphStyle) -> Text:
    return Text(_markup(spans), _wrapping(style, spans))


def _wrapping(style: ParagraphStyle, spans: tuple[Span, ...]) -> ParagraphStyle:
    """The style, breaking lines between any two characters where the text has no spaces to break at."""
    has_cjk = any(name for span in spans for name, _ in fonts.runs(span.text))
    has_long_word = any(len(word) > 40 for span in spans for word in span.text.split())
    return ParagraphStyle(f"{style.name} cjk", style, wordWrap="CJK") if has_cjk or has_long_word else style


def _markup(spans: tuple[Span, ...]) -> str:
    return "".join(map(_span, spans))


def _span(span: Span) -> str:
    text = "".join(_run(name, shown) for name, shown in fonts.runs(span.text))
    text = text.replace("\n", "<br/>")
    if span.code:
        text = f'<font face="Courier">{text}</font>'
    if span.bold:
        text = f"<b>{text}</b>"
    if span.italic:
        text = f"<i>{text}</i>"
    if span.link.startswith(("http://", "https://")):
        text = f'<a href={quoteattr(span.link)} color="blue">{text}</a>'
    return text


def _run(font: str, text: str) -> str:
    return f'<font face="{font}">{escape(text)}</font>' if font else escape(text)
