"""Reads a response as a page of text."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from services.tools.errors import ToolFailed
from services.tools.web.extractor import Extractor
from services.tools.web.fetcher import FetchedResponse

HTML = frozenset({"text/html", "application/xhtml+xml", ""})
"""Types read as HTML; a server that names none mostly sends it."""

PDF = "application/pdf"

TEXT = frozenset(
    {"application/json", "application/xml", "application/javascript", "application/yaml", "application/toml"}
)

NO_CHARSETS = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})


@dataclass(frozen=True, slots=True)
class Page:
    url: str
    title: str
    text: str


async def read_page(fetched: FetchedResponse, extractor: Extractor) -> Page:
    """Reads a page; raises ToolFailed for an error status, a type that is not text-like, or no text."""
    if fetched.status >= 400:
        raise ToolFailed(f"the server answered with status {fetched.status}")
    kind = fetched.content_type
    if kind in HTML or kind == PDF:
        extracted = await extractor.extract("pdf" if kind == PDF else "html", fetched.body)
        title, text = extracted.title, extracted.text
    elif kind.startswith("text/") or kind in TEXT or kind.endswith(("+json", "+xml")):
        title, text = "", _decode_text(fetched)
    else:
        raise ToolFailed(f"{kind!r} is no text; only web pages, text and PDF files can be read")
    if not text.strip():
        raise ToolFailed("there is no readable text; the page may need a browser that runs its scripts")
    return Page(fetched.url, title, text)


def _decode_text(fetched: FetchedResponse) -> str:
    if b"\0" in fetched.body[:8192] and not (fetched.charset or "").lower().startswith("utf-16"):
        raise ToolFailed("the answer says it is text and is not")
    try:
        # Python has codecs that are no charsets: some refuse to replace what is wrong, punycode is slow without bound.
        charset = codecs.lookup(fetched.charset or "utf-8").name
        return fetched.body.decode("utf-8" if charset in NO_CHARSETS else charset, errors="replace")
    except LookupError:  # a charset that nobody knows
        return fetched.body.decode(errors="replace")
