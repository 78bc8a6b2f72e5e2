"""Creates a PDF of A4 pages: embedded fonts, bookmarks, page numbers, and tables that repeat their head on each
page."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from reportlab.lib.colors import HexColor
from reportlab.lib.enums import TA_CENTER, TA_LEFT, TA_RIGHT
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Flowable, HRFlowable, Image, KeepTogether, SimpleDocTemplate, Spacer, XPreformatted
from reportlab.platypus import Paragraph as Text
from reportlab.platypus import Table as Grid

from services.tools.documents.blocks import (
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
from services.tools.documents.fonts import DocumentFonts, Style, embed_fonts
from services.tools.documents.report import Report

MARGIN = 22 * mm
WIDTH, HEIGHT = A4[0] - 2 * MARGIN, A4[1] - 2 * MARGIN
FRAME_PADDING = 6  # reportlab's own, within the margins
PICTURE_HEIGHT_MAX = 0.55 * HEIGHT
DOTS_PER_INCH = 150
"""Resolution at which a picture smaller than the page is shown."""

INK, ACCENT, GREY, LINE, SHADE = map(HexColor, ("#1f2933", "#1f5f8b", "#6b7780", "#d5dce1", "#f4f7f9"))
SIZE, LEADING = 10, 15
HEADING_SIZES = {1: 22, 2: 15, 3: 12, 4: 10.5, 5: 10, 6: 10}
CELL_SIZES = {6: 9, 9: 8, 12: 7}
"""Sizes of a table's text by its maximum number of columns."""

COLUMNS_MAX = max(CELL_SIZES)
"""A wider table is written as lines, because its cells have no room for words."""

QUOTE_CHARS_MAX = 1500
"""Maximum length of a quote with a bar, which must fit a page, because a table's row cannot break everywhere."""

TABLE_CHARS_MAX = 1600
"""Length of a cell that fits half of the page, times the number of columns."""

ALIGNMENTS: dict[str, Any] = {"left": TA_LEFT, "center": TA_CENTER, "right": TA_RIGHT}

BODY = ParagraphStyle("body", fontSize=SIZE, leading=LEADING, spaceAfter=7, textColor=INK)
SMALL = ParagraphStyle("small", BODY, fontSize=8.5, leading=12, textColor=GREY, alignment=TA_CENTER, spaceAfter=10)
CODE = ParagraphStyle("code", BODY, fontSize=8.5, leading=12, spaceAfter=0)
CODE_COLUMNS = 82
"""Characters of a line of code that fit the page."""

QUOTE = ParagraphStyle("quote", BODY, textColor=GREY, spaceAfter=0)

LINK, CODE_BACK = "#1f5f8b", "#eef2f5"


def render_pdf(report: Report) -> tuple[bytes, int]:
    """Render a PDF; also return the number of symbols in no font, shown as fonts.MISSING.

    Raises:
        ToolFailed: No font was found for its words.
    """
    with embed_fonts(report.list_texts()) as fonts:
        file, writer = io.BytesIO(), _PdfWriter(report, fonts)
        sides = ("leftMargin", "rightMargin", "topMargin", "bottomMargin")
        margins = dict.fromkeys(sides, MARGIN - FRAME_PADDING)
        document = SimpleDocTemplate(file, pagesize=A4, title=report.title, **margins)
        flow = [flowable for block in report.blocks for flowable in writer.make_flowables(block)]
        document.build(flow or [Spacer(0, 1)], canvasmaker=writer.make_canvas)
    return file.getvalue(), fonts.missing_chars


class _NumberedCanvas(Canvas):
    """Writes the page numbers once the number of pages is known."""

    def __init__(self, *arguments: Any, writer: _PdfWriter, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._writer = writer
        self._pages: list[dict[str, Any]] = []

    def showPage(self) -> None:
        self._pages.append(dict(vars(self)))
        self._startPage()  # pyright: ignore[reportAttributeAccessIssue] - begins the next page and keeps this one

    def save(self) -> None:
        for number, page in enumerate(self._pages, start=1):
            vars(self).update(page)
            self._writer.draw_footer(self, number, len(self._pages))
            super().showPage()
        super().save()


class _Bookmark(Flowable):
    """An entry of the reader's outline."""

    def __init__(self, title: str, level: int, key: str) -> None:
        super().__init__()
        self._entry = (title, level, key)

    def wrap(self, aW: float, aH: float) -> tuple[float, float]:
        return 0, 0

    def draw(self) -> None:
        title, level, key = self._entry
        self.canv.bookmarkHorizontal(key, 0, LEADING)
        self.canv.addOutlineEntry(title, key, level)


class _PdfWriter:
    def __init__(self, report: Report, fonts: DocumentFonts) -> None:
        self._report = report
        self._fonts = fonts
        self._outline_level = -1
        self._headings = 0
        # Without it a table names a font that the file does not embed.
        self._base_look = ("FONTNAME", (0, 0), (-1, -1), fonts.name_of(Style()))

    def make_canvas(self, *arguments: Any, **options: Any) -> _NumberedCanvas:
        options["initialFontName"] = self._fonts.name_of(Style())  # or the file names a font that it does not embed
        return _NumberedCanvas(*arguments, writer=self, **options)

    def draw_footer(self, canvas: Canvas, number: int, count: int) -> None:
        style = ParagraphStyle("footer", SMALL, alignment=TA_LEFT, spaceAfter=0, wordWrap="CJK")
        canvas.setStrokeColor(LINE)
        canvas.line(MARGIN, MARGIN - 14, A4[0] - MARGIN, MARGIN - 14)
        title = self._report.title if len(self._report.title) <= 70 else f"{self._report.title[:70]}…"
        for text, side in ((title, "left"), (f"{number} / {count}", "right")):
            line = Text(
                format_spans((Span(text),), self._fonts), ParagraphStyle("footer", style, alignment=ALIGNMENTS[side])
            )
            line.wrapOn(canvas, WIDTH, LEADING)
            line.drawOn(canvas, MARGIN, MARGIN - 30)

    def make_flowables(self, block: Block) -> Iterator[Flowable]:
        match block:
            case Heading():
                yield from self._make_heading(block)
            case Paragraph(spans=spans, is_quote=True):
                yield from self._make_quote(spans)
            case Paragraph(spans=spans):
                yield self._make_text(spans, BODY)
            case Picture():
                yield self._make_picture(block)
            case Item(depth=depth, mark=mark, spans=spans):
                indent = 16 * (depth + 1)
                style = ParagraphStyle("item", BODY, leftIndent=indent, bulletIndent=indent - 12, spaceAfter=3)
                yield self._make_text(spans, style, mark or None)
            case Code(text=text):
                yield from self._make_code(text)
            case Table():
                yield from self._make_table(block)

    def _make_heading(self, heading: Heading) -> Iterator[Flowable]:
        self._headings += 1
        # Bookmarks go down one level at a time, even if the text skips levels.
        self._outline_level = min(heading.level - 1, self._outline_level + 1)
        yield _Bookmark(join_text(heading.spans), self._outline_level, f"h{self._headings}")
        size = HEADING_SIZES[heading.level]
        color = INK if heading.level == 1 else ACCENT
        space = 0 if heading.level == 1 else size * 0.9
        style = ParagraphStyle(
            "heading", BODY, fontSize=size, leading=size * 1.3, spaceBefore=space, spaceAfter=5, textColor=color
        )
        style.keepWithNext = 1
        yield self._make_text(tuple(_embolden(heading.spans)), style)
        if heading.level == 1:
            yield HRFlowable(width="100%", thickness=1.5, color=ACCENT, spaceBefore=2, spaceAfter=12)

    def _make_picture(self, picture: Picture) -> Flowable:
        image = Image(io.BytesIO(self._report.pictures[picture.path]))
        width = image.imageWidth * 72 / DOTS_PER_INCH
        scale = min(1, WIDTH / width, PICTURE_HEIGHT_MAX / (image.imageHeight * 72 / DOTS_PER_INCH))
        image.drawWidth, image.drawHeight = width * scale, image.imageHeight * 72 / DOTS_PER_INCH * scale
        caption = [self._make_text((Span(picture.caption),), SMALL)] if picture.caption else []
        return KeepTogether([Spacer(0, 4), image, Spacer(0, 4), *caption, Spacer(0, 4)])

    def _make_code(self, text: str) -> Iterator[Flowable]:
        # One row per line, because a block longer than a page must break.
        lines = [part for line in text.splitlines() or [""] for part in wrap_code(line, CODE_COLUMNS)]
        rows = [[XPreformatted(format_code(line, self._fonts), CODE)] for line in lines]
        look = [
            ("BACKGROUND", (0, 0), (-1, -1), SHADE),
            ("LINEBEFORE", (0, 0), (0, -1), 2.5, ACCENT),
            ("TOPPADDING", (0, 0), (-1, -1), 0),
            ("BOTTOMPADDING", (0, 0), (-1, -1), 0),
            ("TOPPADDING", (0, 0), (-1, 0), 5),
            ("BOTTOMPADDING", (0, -1), (-1, -1), 5),
            ("LEFTPADDING", (0, 0), (-1, -1), 10),
        ]
        yield Spacer(0, 2)
        yield Grid(rows, colWidths=[WIDTH], style=[*look, self._base_look])
        yield Spacer(0, 9)

    def _make_quote(self, spans: tuple[Span, ...]) -> Iterator[Flowable]:
        if len(join_text(spans)) > QUOTE_CHARS_MAX:
            yield self._make_text(spans, ParagraphStyle("long quote", QUOTE, leftIndent=12))
        else:
            bar = [("LINEBEFORE", (0, 0), (0, -1), 2.5, LINE), ("LEFTPADDING", (0, 0), (-1, -1), 10)]
            yield Grid([[self._make_text(spans, QUOTE)]], colWidths=[WIDTH], style=[*bar, self._base_look])
        yield Spacer(0, 7)

    def _make_table(self, table: Table) -> Iterator[Flowable]:
        columns = len(table.rows[0])
        if columns > COLUMNS_MAX:
            for row in table.rows:
                yield self._make_text((Span(" | ".join(join_text(cell) for cell in row)),), BODY)
            return
        size = next(size for most, size in CELL_SIZES.items() if columns <= most)
        cells = [
            [self._make_cell(table, cell, size, row, column) for column, cell in enumerate(cells)]
            for row, cells in enumerate(table.rows)
        ]
        # A row higher than a page must break, any other stays whole, and the head stays with the first of them.
        has_high_row = any(len(join_text(cell)) > TABLE_CHARS_MAX // columns for row in table.rows for cell in row)
        look = [
            *([] if has_high_row else [("NOSPLIT", (0, 0), (-1, 1))]),
            ("BACKGROUND", (0, 0), (-1, 0), ACCENT),
            ("ROWBACKGROUNDS", (0, 1), (-1, -1), ["white", SHADE]),
            ("LINEBELOW", (0, 0), (-1, -1), 0.5, LINE),
            ("VALIGN", (0, 0), (-1, -1), "MIDDLE"),
            ("TOPPADDING", (0, 0), (-1, -1), 4),
            ("BOTTOMPADDING", (0, 0), (-1, -1), 4),
        ]
        yield Spacer(0, 3)
        yield Grid(
            cells,
            colWidths=share_width(table, WIDTH),
            style=[*look, self._base_look],
            repeatRows=1,
            splitInRow=int(has_high_row),
        )
        yield Spacer(0, 10)

    def _make_cell(self, table: Table, cell: tuple[Span, ...], size: float, row: int, column: int) -> Text:
        alignment = ALIGNMENTS.get(table.alignments[column] if table.alignments else "left", TA_LEFT)
        color = HexColor("#ffffff") if row == 0 else INK
        style = ParagraphStyle(
            "cell", BODY, fontSize=size, leading=size * 1.35, spaceAfter=0, alignment=alignment, textColor=color
        )
        return self._make_text(tuple(_embolden(cell)) if row == 0 else cell, style)

    def _make_text(self, spans: tuple[Span, ...], style: ParagraphStyle, bullet: str | None = None) -> Text:
        text = join_text(spans)
        breaks_anywhere = count_width(text) > len(text) or any(len(word) > 40 for word in text.split())
        style = ParagraphStyle(
            style.name,
            style,
            fontName=self._fonts.name_of(Style()),
            bulletFontName=self._fonts.name_of(Style()),
            wordWrap="CJK" if breaks_anywhere else style.wordWrap,
        )
        style.keepWithNext = getattr(style.parent, "keepWithNext", 0)
        return Text(format_spans(spans, self._fonts), style, bulletText=bullet)


def _embolden(spans: tuple[Span, ...]) -> Iterator[Span]:
    for span in spans:
        yield Span(span.text, bold=True, italic=span.italic, code=span.code, link=span.link)


def format_spans(spans: tuple[Span, ...], fonts: DocumentFonts) -> str:
    return "".join(_format_span(span, fonts) for span in spans)


def format_code(line: str, fonts: DocumentFonts) -> str:
    return _format_text(line, Style(code=True), fonts)


def _format_span(span: Span, fonts: DocumentFonts) -> str:
    style = Style(span.bold, span.italic, span.code)
    text = "<br/>".join(_format_text(line, style, fonts) for line in span.text.split("\n"))
    if span.code and text:
        text = f'<font backColor="{CODE_BACK}">{text}</font>'
    if span.link.startswith(("http://", "https://", "mailto:")):
        text = f'<a href={quoteattr(span.link)} color="{LINK}">{text}</a>'
    return text


def _format_text(text: str, style: Style, fonts: DocumentFonts) -> str:
    return "".join(f'<font face="{name}">{escape(part)}</font>' for name, part in fonts.split_by_font(text, style))
