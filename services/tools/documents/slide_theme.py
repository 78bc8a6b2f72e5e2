"""A clean look for slides of 16:9: colours, fonts and places of the template that python-pptx brings."""

from __future__ import annotations

import re
from typing import Any

from pptx import Presentation
from pptx.dml.color import RGBColor
from pptx.enum.text import MSO_ANCHOR
from pptx.opc.constants import RELATIONSHIP_TYPE
from pptx.oxml import parse_xml
from pptx.oxml.ns import nsdecls, qn
from pptx.util import Emu, Inches, Pt

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
"""Fonts that the programs which show slides choose for East Asian text."""


BAR = (
    f'<p:sp {nsdecls("p", "a")}><p:nvSpPr><p:cNvPr id="1000" name="Bar"/><p:cNvSpPr/><p:nvPr userDrawn="1"/></p:nvSpPr>'
    f'<p:spPr><a:xfrm><a:off x="0" y="0"/><a:ext cx="{Inches(0.22)}" cy="{HEIGHT}"/></a:xfrm>'
    '<a:prstGeom prst="rect"><a:avLst/></a:prstGeom><a:solidFill><a:schemeClr val="accent1"/></a:solidFill>'
    "<a:ln><a:noFill/></a:ln></p:spPr></p:sp>"
)
"""A stripe at the left edge of every slide."""


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
    """Places a layout's title and text for the width; dates and footers are not shown."""
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
    """Gives a placeholder's first level its size, left-aligned and in the theme's dark colour."""
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
