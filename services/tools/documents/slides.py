"""Makes slides of 16:9: tables as tables, pictures beside the text, code in its box."""

from __future__ import annotations

import io
import re
from typing import Any

from PIL import Image
from pptx.enum.dml import MSO_THEME_COLOR
from pptx.enum.text import MSO_ANCHOR, PP_ALIGN
from pptx.oxml import parse_xml
from pptx.oxml.ns import nsdecls, qn
from pptx.util import Emu, Inches, Pt

from services.tools.documents.blocks import Code, Picture, Span, Table
from services.tools.documents.column_widths import share_width
from services.tools.documents.report import Report
from services.tools.documents.slide_parts import LINE_COLUMNS, Line, Slide, split_slides
from services.tools.documents.slide_theme import (
    BODY_HEIGHT,
    BODY_TOP,
    BODY_WIDTH,
    FIGURE_LAYOUT,
    GREY,
    HEIGHT,
    INK,
    MARGIN,
    TEXT_LAYOUT,
    TITLE_LAYOUT,
    WIDTH,
    make_presentation,
)

TEXT_PT, CODE_PT, CAPTION_PT = 18, 13, 12
TABLE_PT = {5: 14, 8: 12, 12: 10}
"""Sizes of a table's text by the number of columns that it is for, at most."""

LINE_HEIGHT = Pt(TEXT_PT * 1.5)
ROW_HEIGHT = Inches(0.4)
GAP = Inches(0.35)

ALIGNMENTS = {"left": PP_ALIGN.LEFT, "center": PP_ALIGN.CENTER, "right": PP_ALIGN.RIGHT}

# XML 1.0 has no place for these, not even escaped.
UNWRITABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_slides(report: Report) -> bytes:
    presentation = make_presentation()
    first, *rest = split_slides(report.blocks, report.title)
    slide = presentation.slides.add_slide(presentation.slide_layouts[TITLE_LAYOUT])
    slide.shapes.title.text = _clean(first.title)
    subtitle = slide.placeholders[1]
    if first.lines:
        _write_lines(subtitle, first.lines)
    else:
        subtitle.element.getparent().remove(subtitle.element)
    for number, part in enumerate(rest, start=2):
        _add_slide(presentation, part, report, number)
    presentation.core_properties.title = _clean(report.title)[:255]
    file = io.BytesIO()
    presentation.save(file)
    return file.getvalue()


def _clean(text: str) -> str:
    return UNWRITABLE.sub("", text)


def _add_slide(presentation: Any, part: Slide, report: Report, number: int) -> None:
    layout = TEXT_LAYOUT if part.lines else FIGURE_LAYOUT
    slide = presentation.slides.add_slide(presentation.slide_layouts[layout])
    slide.shapes.title.text = _clean(part.title)
    top, left, width = BODY_TOP, MARGIN, BODY_WIDTH
    if part.lines:
        body = slide.placeholders[1]
        _write_lines(body, part.lines)
        if isinstance(part.figure, Picture):
            body.left, body.top, body.width, body.height = MARGIN, BODY_TOP, Emu((BODY_WIDTH - GAP) // 2), BODY_HEIGHT
            left, width = Emu(MARGIN + (BODY_WIDTH + GAP) // 2), Emu((BODY_WIDTH - GAP) // 2)
        elif part.figure is not None:
            height = Emu(LINE_HEIGHT * part.count_lines(LINE_COLUMNS) + Inches(0.2))
            body.left, body.top, body.width, body.height = MARGIN, BODY_TOP, BODY_WIDTH, height
            top = Emu(BODY_TOP + height)
    match part.figure:
        case Picture():
            _add_picture(slide, part.figure, report.pictures[part.figure.path], left, width)
        case Table():
            _add_table(slide, part.figure, top)
        case Code(text=text):
            _add_code(slide, text, top)
        case None:
            pass
    _add_number(slide, number)


def _write_lines(shape: Any, lines: list[Line]) -> None:
    frame = shape.text_frame
    frame.word_wrap = True
    for number, line in enumerate(lines):
        paragraph = frame.paragraphs[0] if number == 0 else frame.add_paragraph()
        paragraph.space_after = Pt(6)
        if line.level:
            paragraph.level = line.level - 1
        for span in line.spans:
            _add_run(paragraph, span, TEXT_PT, is_quote=line.is_quote)
    for line, element in zip(lines, shape.element.iter(qn("a:p")), strict=True):
        if not line.level:
            element.get_or_add_pPr().set("marL", "0")
            element.get_or_add_pPr().set("indent", "0")
            _set_bullet(element, "<a:buNone {}/>")
        elif line.number:
            # PowerPoint numbers up to 32,767 (ECMA-376, 21.1.10.3).
            number = min(max(line.number, 1), 32767)
            _set_bullet(element, f'<a:buAutoNum {{}} type="arabicPeriod" startAt="{number}"/>')


def _set_bullet(paragraph: Any, xml: str) -> None:
    paragraph.get_or_add_pPr().append(parse_xml(xml.format(nsdecls("a"))))


def _add_run(paragraph: Any, span: Span, size_pt: float, *, is_quote: bool = False) -> None:
    for number, text in enumerate(_clean(span.text).split("\n")):
        if number:
            paragraph.add_line_break()
        run = paragraph.add_run()
        run.text = text
        run.font.size = Pt(size_pt - 2 if span.code else size_pt)
        run.font.bold, run.font.italic = span.bold or None, span.italic or is_quote or None
        if is_quote:
            run.font.color.rgb = GREY
        if span.code:
            run.font.name = "Consolas"
        if span.link.startswith(("http://", "https://", "mailto:")):
            run.hyperlink.address = _clean(span.link)


def _add_picture(slide: Any, picture: Picture, data: bytes, left: Any, width: Any) -> None:
    caption_height = Inches(0.4) if picture.caption else 0
    with Image.open(io.BytesIO(data)) as image:
        scale = min(width / image.width, (BODY_HEIGHT - caption_height) / image.height)
        shown = Emu(int(image.width * scale)), Emu(int(image.height * scale))
    place = Emu(left + (width - shown[0]) // 2)
    shape = slide.shapes.add_picture(io.BytesIO(data), place, BODY_TOP, *shown)
    if not picture.caption:
        return
    shape.element.nvPicPr.cNvPr.set("descr", _clean(picture.caption))
    box = slide.shapes.add_textbox(left, Emu(BODY_TOP + shown[1]), width, caption_height)
    paragraph = box.text_frame.paragraphs[0]
    paragraph.alignment = PP_ALIGN.CENTER
    _add_run(paragraph, Span(picture.caption), CAPTION_PT, is_quote=True)


def _add_table(slide: Any, table: Table, top: Any) -> None:
    rows, columns = len(table.rows), len(table.rows[0])
    size_pt = next(size for most, size in TABLE_PT.items() if columns <= most)
    made = slide.shapes.add_table(rows, columns, MARGIN, top, BODY_WIDTH, Emu(ROW_HEIGHT * rows)).table
    for column, width in enumerate(share_width(table, BODY_WIDTH)):
        made.columns[column].width = Emu(int(width))
    for row, cells in enumerate(table.rows):
        for column, spans in enumerate(cells):
            cell = made.cell(row, column)
            cell.vertical_anchor = MSO_ANCHOR.MIDDLE
            paragraph = cell.text_frame.paragraphs[0]
            paragraph.alignment = ALIGNMENTS.get(table.alignments[column] if table.alignments else "left")
            for span in spans:
                _add_run(paragraph, span, size_pt)


def _add_code(slide: Any, text: str, top: Any) -> None:
    lines = text.splitlines() or [""]
    box = slide.shapes.add_textbox(MARGIN, top, BODY_WIDTH, Emu(Pt(CODE_PT * 1.35) * len(lines) + Inches(0.3)))
    box.fill.solid()
    box.fill.fore_color.theme_color = MSO_THEME_COLOR.BACKGROUND_2
    frame = box.text_frame
    frame.margin_left = Inches(0.2)
    frame.margin_top = frame.margin_bottom = Inches(0.15)
    for number, line in enumerate(lines):
        paragraph = frame.paragraphs[0] if number == 0 else frame.add_paragraph()
        run = paragraph.add_run()
        run.text = _clean(line)
        run.font.size, run.font.name = Pt(CODE_PT), "Consolas"
        run.font.color.rgb = INK


def _add_number(slide: Any, number: int) -> None:
    """Adds the slide's number, as a field that stays right when slides are moved."""
    box = slide.shapes.add_textbox(Emu(WIDTH - MARGIN - Inches(1)), Emu(HEIGHT - Inches(0.6)), Inches(1), Inches(0.35))
    paragraph = box.text_frame.paragraphs[0]
    paragraph.alignment = PP_ALIGN.RIGHT
    field = (
        f'<a:fld {nsdecls("a")} id="{{B6F15528-21DE-4FAA-801E-634DDDAF4B2B}}" type="slidenum">'
        f'<a:rPr lang="en-US" sz="1100"><a:solidFill><a:srgbClr val="{GREY}"/></a:solidFill></a:rPr>'
        f"<a:t>{number}</a:t></a:fld>"
    )
    box.element.find(f".//{qn('a:p')}").append(parse_xml(field))
