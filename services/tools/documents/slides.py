"""Creates 16:9 slides: tables as tables, pictures next to the text, code in its box, in our own theme."""

from __future__ import annotations

import io
import re
from typing import Any

from PIL import Image
from pptx import Presentation
from pptx.dml.color import RGBColor
from pptx.enum.dml import MSO_THEME_COLOR
from pptx.enum.text import MSO_ANCHOR, PP_ALIGN
from pptx.opc.constants import RELATIONSHIP_TYPE
from pptx.oxml import parse_xml
from pptx.oxml.ns import nsdecls, qn
from pptx.util import Emu, Inches, Pt

from services.tools.documents.blocks import Code, Picture, Span, Table, share_width
from services.tools.documents.report import Report
from services.tools.documents.slide_parts import LINE_COLUMNS, Line, Slide, split_slides

WIDTH, HEIGHT = Inches(13.333), Inches(7.5)
MARGIN = Inches(0.75)
BODY_TOP, BODY_HEIGHT = Inches(1.65), Inches(5.0)
BODY_WIDTH = Emu(WIDTH - 2 * MARGIN)

TITLE_LAYOUT, TEXT_LAYOUT, FIGURE_LAYOUT = 0, 1, 5

INK, GREY = RGBColor(0x1F, 0x29, 0x33), RGBColor(0x6B, 0x77, 0x80)
COLORS = {
    "dk1": "1F2933",
    "dk2": "16405E",
    "lt2": "F4F7F9",
    "accent1": "1F5F8B",
    "accent2": "E08E2B",
    "accent3": "4C9F70",
    "accent4": "B5495B",
    "accent5": "6C5B9E",
    "accent6": "3BA3B5",
    "hlink": "1F5F8B",
    "folHlink": "6B7780",
}
SCRIPT_FONTS = {
    "Hans": "Microsoft YaHei",
    "Hant": "Microsoft JhengHei",
    "Jpan": "Yu Gothic",
    "Hang": "Malgun Gothic",
}
"""Fonts that presentation programs choose for East Asian text."""


BAR = (
    f'<p:sp {nsdecls("p", "a")}><p:nvSpPr><p:cNvPr id="1000" name="Bar"/><p:cNvSpPr/><p:nvPr userDrawn="1"/></p:nvSpPr>'
    f'<p:spPr><a:xfrm><a:off x="0" y="0"/><a:ext cx="{Inches(0.22)}" cy="{HEIGHT}"/></a:xfrm>'
    '<a:prstGeom prst="rect"><a:avLst/></a:prstGeom><a:solidFill><a:schemeClr val="accent1"/></a:solidFill>'
    "<a:ln><a:noFill/></a:ln></p:spPr></p:sp>"
)
"""A stripe at the left edge of every slide."""

TEXT_PT, CODE_PT, CAPTION_PT = 18, 13, 12
TABLE_PT = {5: 14, 8: 12, 12: 10}
"""Sizes of a table's text by its maximum number of columns."""

LINE_HEIGHT = Pt(TEXT_PT * 1.5)
ROW_HEIGHT = Inches(0.4)
GAP = Inches(0.35)

ALIGNMENTS = {"left": PP_ALIGN.LEFT, "center": PP_ALIGN.CENTER, "right": PP_ALIGN.RIGHT}

# XML 1.0 has no place for these, not even escaped.
UNWRITABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def make_presentation() -> Any:
    presentation: Any = Presentation()
    presentation.slide_width, presentation.slide_height = WIDTH, HEIGHT
    master = presentation.slide_master
    _set_theme(master)
    for layout in (master, *presentation.slide_layouts):
        _place_parts(layout)
    _set_title_layout(presentation.slide_layouts[TITLE_LAYOUT])
    master.element.find(f".//{qn('p:spTree')}").insert(2, parse_xml(BAR))
    return presentation


def _set_theme(master: Any) -> None:
    part = master.part.part_related_by(RELATIONSHIP_TYPE.THEME)
    xml = part.blob.decode()
    for name, color in COLORS.items():
        xml = re.sub(rf"(<a:{name}>).*?(</a:{name}>)", rf'\1<a:srgbClr val="{color}"/>\2', xml, flags=re.DOTALL)
    for script, font in SCRIPT_FONTS.items():
        xml = re.sub(rf'(<a:font script="{script}" typeface=")[^"]*', rf"\1{font}", xml)
    part.blob = xml.encode()


def _place_parts(layout: Any) -> None:
    """Place a layout's title and text for the width; dates and footers are not shown."""
    for shape in list(layout.placeholders):
        kind = shape.placeholder_format.type
        name = kind.name if kind is not None else ""
        if name in ("DATE", "FOOTER", "SLIDE_NUMBER"):
            shape.element.getparent().remove(shape.element)
        elif "TITLE" in name and name != "SUBTITLE":
            shape.left, shape.top, shape.width, shape.height = MARGIN, Inches(0.45), BODY_WIDTH, Inches(0.95)
            frame = shape.text_frame
            frame.vertical_anchor = MSO_ANCHOR.MIDDLE
            frame.word_wrap = True
            _set_list_style(shape, Pt(30), bold=True)
        elif name in ("BODY", "OBJECT"):
            shape.left, shape.top, shape.width, shape.height = MARGIN, BODY_TOP, BODY_WIDTH, BODY_HEIGHT


def _set_list_style(shape: Any, size: Any, *, bold: bool) -> None:
    """Give a placeholder's first level its size, left-aligned and in the theme's dark colour."""
    namespace = "http://schemas.openxmlformats.org/drawingml/2006/main"
    style = shape.element.find(f".//{{{namespace}}}lstStyle")
    made = parse_xml(
        f'<a:lstStyle xmlns:a="{namespace}"><a:lvl1pPr algn="l" marL="0" indent="0"><a:buNone/>'
        f'<a:defRPr sz="{int(size.pt * 100)}" b="{int(bold)}"><a:solidFill><a:schemeClr val="tx2"/></a:solidFill>'
        "</a:defRPr></a:lvl1pPr></a:lstStyle>"
    )
    style.getparent().replace(style, made)


def _set_title_layout(layout: Any) -> None:
    for shape in layout.placeholders:
        if shape.placeholder_format.idx == 0:
            shape.left, shape.top, shape.width, shape.height = Inches(1.2), Inches(1.9), Inches(10.9), Inches(1.9)
            shape.text_frame.vertical_anchor = MSO_ANCHOR.BOTTOM
            _set_list_style(shape, Pt(44), bold=True)
        else:
            shape.left, shape.top, shape.width, shape.height = Inches(1.2), Inches(4.1), Inches(10.9), Inches(1.8)
            _set_list_style(shape, Pt(20), bold=False)


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
    """Add the slide's number, as a field that stays correct when slides are moved."""
    box = slide.shapes.add_textbox(Emu(WIDTH - MARGIN - Inches(1)), Emu(HEIGHT - Inches(0.6)), Inches(1), Inches(0.35))
    paragraph = box.text_frame.paragraphs[0]
    paragraph.alignment = PP_ALIGN.RIGHT
    field = (
        f'<a:fld {nsdecls("a")} id="{{B6F15528-21DE-4FAA-801E-634DDDAF4B2B}}" type="slidenum">'
        f'<a:rPr lang="en-US" sz="1100"><a:solidFill><a:srgbClr val="{GREY}"/></a:solidFill></a:rPr>'
        f"<a:t>{number}</a:t></a:fld>"
    )
    box.element.find(f".//{qn('a:p')}").append(parse_xml(field))
