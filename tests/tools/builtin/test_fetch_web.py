"""fetch_web over a real service that may reach the test's own site."""

import asyncio
import io
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pypdf
import pytest
from aiohttp import web
from pypdf.generic import DecodedStreamObject, NameObject
from reportlab.pdfgen import canvas

from headrace.streams import reading
from services.runtime.auth.identity import Identity, acting_as
from services.tools.documents.file_types import render_file
from services.tools.errors import ToolFailed
from services.tools.web.fetcher import SIZE_BYTES_MAX, FetchedResponse
from services.tools.web.web import EXTRACTS_MAX, Extractor, read_page
from tests.support.tools.calls import list_sources, read_deltas, request
from tests.support.tools.processes import wait_for_no_processes
from tests.support.tools.suite import Serve, Suite
from tests.support.web_server import serving_web

ARTICLE = (
    "<html><head><title>Water  mills &amp; more</title></head><body><nav><a href='/a'>Home</a>"
    "<a href='/b'>Shop</a></nav><article><h1>Mills</h1><p>"
    + "A mill turns when water falls on its wheel. " * 8
    + "</p><table><tr><td>a</td><td>b</td></tr></table></article><footer>Imprint</footer></body></html>"
)


@asynccontextmanager
async def fetching(
    serve: Serve, body: bytes, content_type: str, status: int = 200
) -> AsyncGenerator[tuple[Suite, str]]:
    async def answer(request: web.Request) -> web.Response:
        del request
        return web.Response(body=body, status=status, headers={"Content-Type": content_type} if content_type else {})

    async with asyncio.timeout(200), serving_web(answer) as port:
        host = f"127.0.0.1:{port}"
        async with serve(None, fetch_allow=host) as suite:
            yield suite, f"http://{host}/page"


async def fetch_page(serve: Serve, body: bytes, content_type: str, status: int = 200) -> tuple[Any, list[str]]:
    """Fetch a page and return the result and the list of URLs."""
    async with fetching(serve, body, content_type, status) as (suite, url):
        deltas = await read_deltas(suite, request("fetch_web", {"url": url}))
    return deltas[-1].result, list_sources(deltas)


async def test_a_page_is_returned_as_text_without_its_menus(serve: Serve) -> None:
    async with fetching(serve, ARTICLE.encode(), "text/html; charset=utf-8") as (suite, url):
        deltas = await read_deltas(suite, request("fetch_web", {"url": url}))
    source, result = deltas[0].source, deltas[-1].result
    assert (source.title, source.url, source.source_id) == ("Water mills & more", url, "call_1_s_1")
    assert result.ok
    assert result.result.startswith(f"# Water mills & more\nSource: {url}\n\n")
    assert "A mill turns" in result.result
    assert "| a | b |" in result.result
    assert "Shop" not in result.result


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b'{"a": "\xe6\xb0\xb4"}', "application/json", '{"a": "水"}'),
        ("水车".encode("gbk"), "text/plain; charset=gbk", "水车"),
        (b"caf\xe9", "text/plain; charset=nonsense", "café"),
        (b"plain", "text/plain; charset=undefined", "plain"),
        (b"caf\xe9", "text/plain; charset=idna", "café"),
        (b"plain-", "text/plain; charset=punycode", "plain-"),
        (b"<a>x</a>", "application/atom+xml", "<a>x</a>"),
        ("Größe;“ä”".encode("cp1252"), "text/csv", "Größe;“ä”"),
        ("“ä”".encode("cp1252"), "text/plain; charset=iso-8859-1", "“ä”"),
        ("中文网页内容".encode("gb18030") * 4, "text/plain", "中文网页内容"),
        (b"\xef\xbb\xbfmarked", "text/plain; charset=utf-8", "\n\nmarked"),
        ('{"a": "ä"}'.encode("utf-16"), "application/json", '{"a": "ä"}'),
        (b"# by its content\n", "application/octet-stream", "# by its content"),
        (b"{}\n{}\n", "application/x-ndjson", "{}\n{}"),
        ("<html><body><p>Привет мир</p></body></html>".encode("cp1251"), "text/html; charset=windows-1251", "Привет"),
        ("<html><body><p>Größe ä</p></body></html>".encode(), "text/html; charset=nonsense", "Größe ä"),
        (b"<title>t</title><p>no body tag", "text/html", "no body tag"),
        (b"<p>a large page</p>" * 60_000, "text/html", "a large page"),
        ("<html><head><meta charset=gbk></head><body><p>水车转</p></body></html>".encode("gbk"), "text/html", "水车转"),
    ],
)
async def test_other_text_types_are_read_too(serve: Serve, body: bytes, content_type: str, expected: str) -> None:
    result, _ = await fetch_page(serve, body, content_type)
    assert result.ok
    assert expected in result.result


@pytest.mark.parametrize("content_type", ["application/pdf", "application/x-pdf", "application/octet-stream"])
async def test_a_pdf_is_read(serve: Serve, content_type: str) -> None:
    pdf = (await render_file("# Water mills\n\nThey turn.", "pdf")).data
    result, _ = await fetch_page(serve, pdf, content_type)
    assert result.ok
    assert result.result.startswith("# Water mills\n")
    assert "They turn." in result.result


@pytest.mark.parametrize(
    ("body", "content_type", "status", "message"),
    [
        (b"gone", "text/plain", 404, "status 404"),
        (b"\x89PNG", "image/png", 200, "'image/png' is no text"),
        (b"PK\x03\x04\xff\xfe", "application/octet-stream", 200, "is no text"),
        (b"a\0b", "text/plain", 200, "is not"),
        (b"<html><body><script>draw()</script></body></html>", "text/html", 200, "needs a browser|may need a browser"),
        (b"", "text/html", 200, "no readable text"),
        (b"%PDF-1.7 and nothing else", "application/pdf", 200, "damaged"),
    ],
)
async def test_an_unreadable_response_is_reported(
    serve: Serve, body: bytes, content_type: str, status: int, message: str
) -> None:
    result, found = await fetch_page(serve, body, content_type, status)
    assert not result.ok
    assert any(words in result.result for words in message.split("|")), result.result
    assert not found


LINES = (
    '<span id="l1"><a id="n1" href="#n1"></a><span class="k">$ </span>pip<span class="w"> </span>install mill\n</span>'
)
CODE = f"""<html><head><title>Mill</title></head><body><article><h1>Mill</h1><p>Install it with <code>pip</code>:</p>
<div class="highlight"><pre><span></span><code>{LINES}</code></pre></div>
<div class="tabbed"><div class="block"><div class="highlight"><pre><code>{LINES.replace("pip", "uv")}</code></pre></div>
</div></div><pre>one<br>  two</pre><figure><pre><code><div class="line"><div class="code">three</div></div><div
class="line"><div class="code">four</div></div></code></pre></figure><table><tr><td><pre>1\n2</pre></td><td><pre>five
six</pre></td></tr></table><p>Then use it: {"a mill turns. " * 20}</p></article></body></html>"""


async def test_code_with_links_to_its_lines_is_read(serve: Serve) -> None:
    """As MkDocs and others write it."""
    result, _ = await fetch_page(serve, CODE.encode(), "text/html")
    for code in ("$ pip install mill", "$ uv install mill", "one\n  two", "three\nfour", "five\nsix"):
        assert f"```\n{code}\n```" in result.result


MOVED = """<!DOCTYPE html><html><head><meta charset="utf-8"><title>Redirecting</title><noscript>
    <meta http-equiv="{name}" content="{content}"></noscript></head><body>{body}Redirecting to
    <a href="latest/">latest/</a>...</body></html>"""


@pytest.mark.parametrize(
    ("name", "content", "body", "is_followed"),
    [
        ("refresh", "1; url=latest/?a=%2F&amp;b", "", True),
        ("Refresh", "0;URL='latest/?a=%2F&amp;b'", "", True),
        ("refresh", "0, url=latest/?a=%2F&amp;b", "", True),
        ("refresh", "300; url=latest/?a=%2F&amp;b", "", False),
        ("refresh", "5", "", False),
        ("refresh", "0; url=javascript:alert(1)", "", False),
        ("refresh", "0; url=/no-scripts", "<p>" + "A page of its own, with text. " * 30 + "</p>", False),
    ],
)
async def test_a_page_that_only_leads_on_is_followed(
    serve: Serve, name: str, content: str, body: str, *, is_followed: bool
) -> None:
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/docs/":
            return web.Response(text=MOVED.format(name=name, content=content, body=body), content_type="text/html")
        return web.Response(text=f"the manual at {request.raw_path}")

    async with asyncio.timeout(200), serving_web(answer) as port:
        url = f"http://127.0.0.1:{port}/docs/"
        async with serve(None, fetch_allow=f"127.0.0.1:{port}") as suite:
            seen = await read_deltas(suite, request("fetch_web", {"url": url}))
    text = seen[-1].result.result
    assert ("the manual at /docs/latest/?a=%2F&b" in text, list_sources(seen)) == (
        is_followed,
        [f"{url}latest/?a=%2F&b" if is_followed else url],
    )


async def test_pages_that_lead_to_each_other_are_not_followed_for_ever(serve: Serve) -> None:
    page = MOVED.format(name="refresh", content="0; url=/page", body="").encode()
    result, _ = await fetch_page(serve, page, "text/html")
    assert result.ok
    assert "Redirecting to" in result.result


async def test_a_long_page_is_stored_in_full_as_an_artifact(serve: Serve) -> None:
    text = "word " * 20_000
    async with fetching(serve, text.encode(), "text/plain") as (suite, url):
        deltas = await read_deltas(suite, request("fetch_web", {"url": url}))
        (artifact,) = (delta.artifact for delta in deltas if delta.HasField("artifact"))
        assert (suite.workspace / "outputs" / "results" / artifact.name).read_text().endswith(text)
    assert len(deltas[-1].result.result) <= 30_000


async def test_a_page_slower_than_the_calls_timeout_is_abandoned(serve: Serve) -> None:
    disconnected = asyncio.Event()

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        disconnected.set()

    async with asyncio.timeout(100), await asyncio.start_server(never, "127.0.0.1", 0) as site:
        host = f"127.0.0.1:{site.sockets[0].getsockname()[1]}"
        async with serve(None, fetch_allow=host) as suite:
            deltas = await read_deltas(suite, request("fetch_web", {"url": f"http://{host}/"}, timeout_ms=300))
        await disconnected.wait()
    assert (deltas[-1].result.ok, deltas[-1].result.result) == (False, "ended after 0.3 s: its time was over")


async def test_a_forbidden_address_is_reported_to_the_model(serve: Serve) -> None:
    async with serve() as suite:
        deltas = await read_deltas(suite, request("fetch_web", {"url": "http://169.254.169.254/latest/meta-data"}))
    assert not deltas[-1].result.ok
    assert "link-local" in deltas[-1].result.result


async def test_cancelling_the_call_ends_the_extracting_process(serve: Serve) -> None:
    body = b"<p>hello <b>x</b> world, more</p>" * 100_000
    async with fetching(serve, body, "text/html") as (suite, url):
        async with reading(suite.stub.Execute(request("fetch_web", {"url": url}))) as deltas:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await anext(deltas)
        await wait_for_no_processes()


async def test_a_response_without_a_content_type_is_read_as_html() -> None:
    async with asyncio.timeout(200):
        page = await read_page(
            FetchedResponse("u", 200, "", None, b"<html><body>only a line</body></html>"), Extractor()
        )
    assert page.text == "only a line"


def make_pdf(*pages: str, broken: int = -1) -> bytes:
    """A PDF file with these pages; an empty one is a picture, and text of the page `broken` cannot be read."""
    file = io.BytesIO()
    drawing = canvas.Canvas(file)
    for text in pages:
        drawing.rect(0, 0, 300, 300, fill=1) if not text else drawing.drawString(72, 700, text)
        drawing.showPage()
    drawing.save()
    if broken < 0:
        return file.getvalue()
    writer = pypdf.PdfWriter(clone_from=file)
    stream = DecodedStreamObject()
    stream.set_data(b"BT ET")
    stream[NameObject("/Filter")] = NameObject("/Unheard")
    writer.pages[broken][NameObject("/Contents")] = stream
    copy = io.BytesIO()
    writer.write(copy)
    return copy.getvalue()


async def test_a_pdf_may_be_larger_than_a_page(serve: Serve) -> None:
    """As papers with pictures are."""
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(make_pdf("a paper")))
    writer.add_attachment("figure", random.Random(1).randbytes(SIZE_BYTES_MAX))
    pdf = io.BytesIO()
    writer.write(pdf)
    result, _ = await fetch_page(serve, pdf.getvalue(), "application/pdf")
    assert (result.ok, "a paper" in result.result) == (True, True), result.result
    result, _ = await fetch_page(serve, pdf.getvalue(), "text/plain")
    assert (result.ok, result.result) == (False, "the answer is larger than 5 MiB")


@pytest.mark.parametrize(
    ("pdf", "note"),
    [
        (make_pdf("first", "", "last"), "[… 3 pages, of which 2 has no text: it may be a picture …]"),
        (make_pdf("first", "middle", "last", broken=1), "[… 3 pages, of which 2 cannot be read …]"),
        (make_pdf("first", *["more"] * 201, "last"), "[… 203 pages, of which the first 200 were read …]"),
        (make_pdf("first", "last"), ""),
    ],
)
async def test_what_is_missing_of_a_pdf_is_told_and_the_rest_is_read(serve: Serve, pdf: bytes, note: str) -> None:
    result, _ = await fetch_page(serve, pdf, "application/pdf")
    assert result.ok
    assert "first" in result.result
    assert result.result.partition("[…")[1:] == note.partition("[…")[1:]
    assert ("last" in result.result) is ("200" not in note)


async def test_a_pdf_that_contains_itself_is_refused() -> None:
    pdf = io.BytesIO()
    pdf.write(
        b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[2 0 R]/Count 1>>endobj\n"
    )
    pdf.write(b"trailer<</Root 1 0 R>>\n")
    async with asyncio.timeout(200):
        with pytest.raises(ToolFailed, match="PDF document c"):
            await Extractor().extract("pdf", pdf.getvalue())


async def test_a_pdf_of_pictures_is_not_taken_for_a_page_with_scripts(serve: Serve) -> None:
    result, _ = await fetch_page(serve, make_pdf("", ""), "application/pdf")
    assert (result.ok, result.result) == (False, "the PDF file has no text: its pages may be pictures of a scanner")


async def test_one_tenants_documents_leave_capacity_for_others() -> None:
    extractor, body = Extractor(), b"<html><body><p>A page with some words in it.</p></body></html>"

    async def extract(tenant: str) -> str:
        with acting_as(Identity(tenant, "user")):
            return (await extractor.extract("html", body)).text

    async with asyncio.timeout(200), asyncio.TaskGroup() as group:
        of_one = [group.create_task(extract("mill")) for _ in range(EXTRACTS_MAX)]
        await group.create_task(extract("farm"))
        assert not of_one[-1].done()
