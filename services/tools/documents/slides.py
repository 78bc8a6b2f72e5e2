"""Makes slides from Markdown: each heading begins one, `#` the title slide."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pptx import Presentation
from pptx.util import Pt

from services.tools.documents.blocks import (
    BULLET,
    Block,
    Code,
    Heading,
    Item,
    Paragraph,
    Span,
    Table,
    join_text,
    parse_blocks,
)

LINES_MAX = 10
CHARS_MAX = 700
"""Characters that fit on a slide at TEXT_PT; the rest goes to the next one."""

TEXT_PT, CODE_PT = 18, 14

TITLE_LAYOUT, TEXT_LAYOUT = 0, 1

LEVELS_MAX = 4

SUBTITLE_CHARS_MAX = 200

# XML 1.0 has no place for these, not even escaped.
UNWRITABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Line:
    spans: tuple[Span, ...]
    level: int = 0
    code: bool = False


@dataclass(slots=True)
class Slide:
    title: str
    lines: list[Line] = field(default_factory=list[Line])

    def has_room_for(self, line: Line) -> bool:
        chars = sum(len(join_text(other.spans)) for other in self.lines) + len(join_text(line.spans))
        return not self.lines or (len(self.lines) < LINES_MAX and chars <= CHARS_MAX)


def render_slides(text: str, title: str) -> bytes:
    presentation: Any = Presentation()
    slides = list(_split_slides(parse_blocks(UNWRITABLE.sub("", text)), UNWRITABLE.sub("", title)))
    title_slide = presentation.slides.add_slide(presentation.slide_layouts[TITLE_LAYOUT])
    title_slide.shapes.title.text = slides[0].title
    title_slide.placeholders[1].text = "\n".join(join_text(line.spans) for line in slides[0].lines)
    for slide in slides[1:]:
        _add_slide(presentation, slide)
    presentation.core_properties.title = slides[0].title[:255]
    file = io.BytesIO()
    presentation.save(file)
    return file.getvalue()


def _split_slides(blocks: Iterable[Block], title: str) -> Iterator[Slide]:
    slide, is_first = Slide(title), True
    for block in blocks:
        if isinstance(block, Heading):
            name = join_text(block.spans)
            if is_first and block.level == 1 and not slide.lines:
                slide.title = name
            else:
                yield slide
                slide, is_first = Slide(name), False
            continue
        for line in _make_lines(block):
            is_long = line.code or len(join_text(line.spans)) > SUBTITLE_CHARS_MAX
            if (is_first and is_long) or not slide.has_room_for(line):
                yield slide
                slide, is_first = Slide(slide.title), False
            slide.lines.append(line)
    yield slide


def _make_lines(block: Block) -> Iterator[Line]:
    match block:
        case Paragraph(spans=spans):
            yield from _split_paragraph(spans, 0)
        case Item(depth=depth, mark=mark, spans=spans):
            numbered = (Span(f"{mark} "), *spans) if mark not in ("", BULLET) else spans
            yield from _split_paragraph(numbered, min(depth + 1, LEVELS_MAX))
        case Code(text=text):
            yield from (Line((Span(line[:CHARS_MAX]),), code=True) for line in text.splitlines())
        case Table(rows=rows):
            for row in rows:
                yield Line((Span(" | ".join(join_text(cell) for cell in row)[:CHARS_MAX]),))
        case Heading():
            raise AssertionError("a heading begins a slide")


def _split_paragraph(spans: tuple[Span, ...], level: int) -> Iterator[Line]:
    text = join_text(spans)
    if len(text) <= CHARS_MAX:
        yield Line(spans, level)
        return
    for start in range(0, len(text), CHARS_MAX):
        yield Line((Span(text[start : start + CHARS_MAX]),), level)


def _add_slide(presentation: Any, slide: Slide) -> None:
    pptx_slide = presentation.slides.add_slide(presentation.slide_layouts[TEXT_LAYOUT])
    pptx_slide.shapes.title.text = slide.title
    frame = pptx_slide.placeholders[1].text_frame
    for number, line in enumerate(slide.lines):
        paragraph = frame.paragraphs[0] if number == 0 else frame.add_paragraph()
        paragraph.level = line.level
        for span in line.spans:
            _add_run(paragraph, span, is_code=line.code or span.code)


def _add_run(paragraph: Any, span: Span, *, is_code: bool) -> None:
    run = paragraph.add_run()
    run.text = span.text
    run.font.size = Pt(CODE_PT if is_code else TEXT_PT)
    run.font.bold, run.font.italic = span.bold or None, span.italic or None
    if is_code:
        run.font.name = "Courier New"
    if span.link.startswith(("http://", "https://")):
        run.hyperlink.address = span.link
