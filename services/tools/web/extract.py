"""Converts bytes on stdin to {"title", "text", "refresh"} as JSON on stdout, in a process of web.py.

A document that cannot be read ends the process with a nonzero code; of a PDF file with some bad pages the others are
read.
"""

from __future__ import annotations

import io
import json
import resource
import sys
import time
from typing import Any

MEMORY_BYTES_MAX = 768 * 1024 * 1024
CPU_S_MAX = 12

TEXT_CHARS_MAX = 2_000_000

PDF_PAGES_MAX = 200

PDF_S = 8.0
"""Processor time after which no further page is started, so that the earlier ones are not lost."""

PAGES_NAMED_MAX = 20

REFRESH_S_MAX = 10

MOVED_CHARS_MAX = 500
"""Longest text of a page that only redirects to another; one with more text is a page of its own."""

ARTICLE_BYTES_MAX = 1024 * 1024
"""Maximum size of a page whose article is extracted: 1 MiB takes up to 6 s and 200 MB, 5 MiB too much of both
(trafilatura 2.3); extracting all text takes 0.2 to 2 s."""


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S_MAX, CPU_S_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    read = {"html": _extract_html, "pdf": _extract_pdf}[sys.argv[1]]
    title, text, refresh = read(sys.stdin.buffer.read())
    result = {"title": " ".join(title.split())[:300], "text": text[:TEXT_CHARS_MAX], "refresh": refresh}
    # A decoded page may contain half surrogate pairs, which the JSON's receiver refuses.
    cleaned = {key: value.encode(errors="replace").decode() for key, value in result.items()}
    sys.stdout.write(json.dumps(cleaned))


def _extract_html(body: bytes) -> tuple[str, str, str]:
    import trafilatura

    tree = trafilatura.load_html(body)
    if tree is None:
        return "", "", ""
    title, refresh = tree.findtext(".//title") or "", _find_refresh(tree)
    article = None
    if len(body) <= ARTICLE_BYTES_MAX:
        _flatten_code(tree)
        article = trafilatura.extract(tree, output_format="markdown", include_comments=False)
    # The fallback takes all text, for a page that is not an article, such as a list of links. It is parsed again,
    # because extract() modifies its tree. Given bytes, html2txt finds nothing in a page without a body tag.
    text = article or trafilatura.html2txt(trafilatura.load_html(body))
    return title, text, refresh if len(text) <= MOVED_CHARS_MAX else ""


def _flatten_code(tree: Any) -> None:
    """Leave only text in blocks of code, and no frame or line numbers around them.

    For links to its lines, as in many manuals, a block is taken for a menu, for a frame for a picture.
    """
    for frame in list(tree.iter("figure", "table")):
        blocks = frame.findall(".//pre")
        if blocks and len(blocks) == (len(frame.findall(".//td")) or 1):
            blocks[-1].tail = frame.tail
            frame.getparent().replace(frame, blocks[-1])
    for block in list(tree.iter("pre")):
        for line_end in (one for one in block.iter("br", "div") if one.find("div") is None):
            line_end.tail = "\n" + (line_end.tail or "")
        text = block.text_content()
        for child in list(block):
            block.remove(child)
        block.text = None
        code = block.makeelement("code")
        code.text = text
        block.append(code)


def _find_refresh(tree: Any) -> str:
    """Return the address that a browser would soon load by itself; empty without one."""
    for meta in tree.iterfind(".//meta[@content]"):
        delay, _, target = meta.get("content").replace(",", ";", 1).partition(";")
        name, _, address = target.partition("=")
        is_soon = delay.strip().isdecimal() and int(delay[:9]) <= REFRESH_S_MAX
        if meta.get("http-equiv", "").lower() == "refresh" and name.strip().lower() == "url" and is_soon:
            return address.strip().strip("'\"")
    return ""


def _extract_pdf(body: bytes) -> tuple[str, str, str]:
    import pypdf

    reader = pypdf.PdfReader(io.BytesIO(body))
    texts, bad, blank = list[str](), list[int](), list[int]()
    for number, page in enumerate(reader.pages[:PDF_PAGES_MAX], start=1):
        if time.process_time() > PDF_S:
            break
        try:
            texts.append(page.extract_text())
        except Exception:  # pypdf raises whatever comes of a bad font or stream
            bad.append(number)
            continue
        if not texts[-1].strip():
            blank.append(number)
    text = "\n\n".join(texts)
    if not text.strip():
        return "", "", ""
    count, read = len(reader.pages), len(texts) + len(bad)
    notes = [f"the first {read} were read"] if read < count else []
    notes += [f"{_list(bad)} cannot be read"] if bad else []
    notes += [f"{_list(blank)} has no text: it may be a picture"] if blank else []
    if notes:
        text += f"\n\n[… {count} pages, of which {'; '.join(notes)} …]"
    title = reader.metadata.title if reader.metadata else None
    return str(title or ""), text, ""


def _list(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:PAGES_NAMED_MAX]))
    return f"{shown} …" if len(numbers) > PAGES_NAMED_MAX else shown
