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
from services.tools.documents.blocks import Block, Code, Heading, Item, Paragraph, Span, Table, join_text, parse_blocks

MARGIN = 20 * mm
SIZE, LEADING = 10.5, 15

COLUMNS_MAX = 12
"""A wider table is written as lines, because words have no room in its cells."""

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


def render_pdf(text: str, title: str) -> bytes:
    """Renders a PDF, in which fonts.MISSING stands for characters that no font has."""
    fonts.register_fonts()
    file = io.BytesIO()
    document = SimpleDocTemplate(
        file,
        pagesize=A4,
        title=title,
        **dict.fromkeys(("leftMargin", "rightMargin", "topMargin", "bottomMargin"), MARGIN),
    )
    flow = [flowable for block in parse_blocks(text) for flowable in _make_flowables(block)]
    document.build(flow or [Spacer(0, 1)])
    return file.getvalue()


def _make_flowables(block: Block) -> Iterator[Flowable]:
    match block:
        case Heading(level=level, spans=spans):
            yield _make_paragraph(spans, HEADINGS[level])
        case Paragraph(spans=spans):
            yield _make_paragraph(spans, BODY)
        case Item(depth=depth, mark=mark, spans=spans):
            indent = 14 * (depth + 1)
            style = ParagraphStyle("item", BODY, leftIndent=indent, bulletIndent=indent - 12, spaceAfter=2)
            yield Text(_format_spans(spans), _choose_wrapping(style, spans), bulletText=mark or None)
        case Code(text=text):
            # One paragraph for each line: a block that is longer than a page has to break.
            for line in text.splitlines():
                code_line = line.replace("\t", "    ").replace(" ", "\u00a0")
                yield _make_paragraph((Span(code_line),), CODE)
            yield Spacer(0, 6)
        case Table(rows=rows):
            yield from _make_table(rows)


def _make_table(rows: tuple[tuple[tuple[Span, ...], ...], ...]) -> Iterator[Flowable]:
    if len(rows[0]) > COLUMNS_MAX:
        for row in rows:
            yield _make_paragraph((Span(" | ".join(join_text(cell) for cell in row)),), BODY)
        return
    width = (A4[0] - 2 * MARGIN) / len(rows[0])
    cells = [[_make_paragraph(cell, BODY) for cell in row] for row in rows]
    yield Spacer(0, 4)
    yield Grid(cells, colWidths=[width] * len(rows[0]), style=GRID, repeatRows=1, splitInRow=1)
    yield Spacer(0, 8)


def _make_paragraph(spans: tuple[Span, ...], style: ParagraphStyle) -> Text:
    return Text(_format_spans(spans), _choose_wrapping(style, spans))


def _choose_wrapping(style: ParagraphStyle, spans: tuple[Span, ...]) -> ParagraphStyle:
    has_cjk = any(name for span in spans for name, _ in fonts.split_by_font(span.text))
    has_long_word = any(len(word) > 40 for span in spans for word in span.text.split())
    return ParagraphStyle(f"{style.name} cjk", style, wordWrap="CJK") if has_cjk or has_long_word else style


def _format_spans(spans: tuple[Span, ...]) -> str:
    return "".join(map(_format_span, spans))


def _format_span(span: Span) -> str:
    text = "".join(
        f'<font face="{font}">{escape(shown)}</font>' if font else escape(shown)
        for font, shown in fonts.split_by_font(span.text)
    )
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
