"""Reads web pages as text, which is extracted in a process that may die (extract.py)."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from weakref import WeakValueDictionary

import msgspec
from yarl import URL

from headrace.v1 import agent_pb2, tools_pb2
from services.runtime.auth.identity import current_tenant
from services.runtime.net.targets import keep_encoding
from services.tools.errors import ToolFailed
from services.tools.web.charsets import decode_answer, find_charset, is_utf8
from services.tools.web.fetcher import FetchedResponse, Fetcher
from services.tools.web.search import Search

HTML = frozenset({"text/html", "application/xhtml+xml", ""})
"""Types read as HTML; a server that sends no type usually sends HTML."""

PDF = "application/pdf"

TEXT = frozenset(
    {"application/json", "application/xml", "application/javascript", "application/yaml", "application/toml"}
)

UNKNOWN_TYPES = frozenset({"application/octet-stream", "binary/octet-stream"})

REFRESHES_MAX = 2

EXTRACT_S = 15.0
"""Time for one document: pages take 0.2 to 6 s; a PDF file may be crafted to take forever."""

EXTRACTS_MAX, TENANT_EXTRACTS_MAX = 4, 3
"""Maximum concurrent processes, and those of a tenant, each of up to 768 MB; the next ones wait."""

SOURCE = str(Path(__file__).parents[3])
START = f"import sys; sys.path.insert(0, {SOURCE!r}); from services.tools.web.extract import main; main()"


def make_source(number: int, call_id: str, title: str, url: str) -> tools_pb2.ToolDelta:
    """Return a source; its id is unique in the call."""
    return tools_pb2.ToolDelta(
        source=agent_pb2.SourceSnapshot(source_id=f"{call_id}_s_{number}", title=title or None, url=url)
    )


@dataclass(frozen=True, slots=True)
class Page:
    url: str
    title: str
    text: str
    refresh: str = ""
    """Address to which the page, which has hardly any text, redirects; empty for others."""


async def read_page(fetched: FetchedResponse, extractor: Extractor) -> Page:
    """Read a page. Raises ToolFailed for an error status, a type that is not text-like, or no text."""
    if fetched.status >= 400:
        raise ToolFailed(f"the server answered with status {fetched.status}")
    kind, refresh = fetched.content_type, ""
    if kind == PDF or fetched.body.startswith(b"%PDF-"):  # under other names, too, such as application/x-pdf
        extracted = await extractor.extract("pdf", fetched.body)
        title, text = extracted.title, extracted.text
        if not text:
            raise ToolFailed("the PDF file has no text: its pages may be pictures of a scanner")
    elif kind in HTML:
        # Without a declared charset the extractor takes the page's own.
        body = fetched.body
        if find_charset(fetched.charset) is not None:
            body = (await asyncio.to_thread(decode_answer, body, fetched.charset)).encode(errors="replace")
        extracted = await extractor.extract("html", body)
        title, text, refresh = extracted.title, extracted.text, extracted.refresh
    elif kind.startswith("text/") or kind in TEXT or kind.endswith(("+json", "+xml")) or _is_unnamed_text(fetched):
        title, text = "", await asyncio.to_thread(decode_answer, fetched.body, fetched.charset)
    else:
        raise ToolFailed(f"{kind!r} is no text; only web pages, text and PDF files can be read")
    if not text.strip() and not refresh:
        raise ToolFailed("there is no readable text; the page may need a browser that runs its scripts")
    return Page(fetched.url, title, text, refresh)


def _is_unnamed_text(fetched: FetchedResponse) -> bool:
    """Return whether an answer is UTF-8 under a type that says nothing of it, or not enough, such as jsonl."""
    kind = fetched.content_type
    is_unnamed = kind in UNKNOWN_TYPES or kind.startswith("application/x-") or kind.endswith(("json", "jsonl"))
    return is_unnamed and is_utf8(fetched.body)


class ExtractedText(msgspec.Struct, frozen=True):
    title: str
    text: str
    refresh: str


class Extractor:
    def __init__(self) -> None:
        self._places = asyncio.Semaphore(EXTRACTS_MAX)
        self._tenant_places: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """Places by tenant: at most TENANT_EXTRACTS_MAX of a tenant are ahead of others; its other calls wait."""

    async def extract(self, kind: Literal["html", "pdf"], body: bytes) -> ExtractedText:
        """Extract the text. Raises ToolFailed if the document cannot be read, or not in time."""
        if kind == "pdf" and find_spec("pypdf") is None:
            raise ToolFailed("EXTRA_MISSING: pypdf is not installed: pip install 'headrace[documents]' for PDF files")
        own = self._tenant_places.setdefault(current_tenant(), asyncio.Semaphore(TENANT_EXTRACTS_MAX))
        async with own, self._places:
            # Leaving early kills the process.
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-X", "utf8", "-c", START, kind),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={},
            )
            try:
                async with asyncio.timeout(EXTRACT_S):
                    output, _ = await process.communicate(body)
            except TimeoutError as error:
                raise ToolFailed(f"the {kind.upper()} document could not be read within {EXTRACT_S:g} s") from error
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        if process.returncode != 0:
            raise ToolFailed(f"the {kind.upper()} document cannot be read: it is damaged or too large")
        return msgspec.json.decode(output, type=ExtractedText)


@dataclass(frozen=True, slots=True)
class Web:
    fetcher: Fetcher = Fetcher()
    search: Search = Search("")
    extractor: Extractor = field(default_factory=Extractor)

    async def read_url(self, url: str) -> Page:
        """Read a page, or the one to which it redirects. Raises ToolFailed."""
        page = await read_page(await self.fetcher.fetch(url), self.extractor)
        for _ in range(REFRESHES_MAX):
            try:
                address = URL(page.url).join(keep_encoding(page.refresh)) if page.refresh else None
            except ValueError:
                address = None
            if address is None or address.scheme not in ("http", "https"):
                break
            page = await read_page(await self.fetcher.fetch(str(address)), self.extractor)
        return page
