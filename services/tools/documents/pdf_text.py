"""Writes text in reportlab's markup, each stretch in the font that has its characters."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from services.tools.documents.blocks import Span
from services.tools.documents.fonts import DocumentFonts, Style

LINK, CODE_BACK = "#1f5f8b", "#eef2f5"


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
