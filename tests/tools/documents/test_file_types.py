"""Every file type from every kind of Markdown, since models may write anything."""

import asyncio
import io
import random
import struct
import sys
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image
from pptx import Presentation
from pptx.util import Inches
from pypdf import PdfReader

from services.tools.documents.blocks import Code, Heading, Item, Paragraph, Picture, Table, join_text, parse_blocks
from services.tools.documents.file_types import SUFFIXES, render_file
from services.tools.documents.fonts import REGISTERED, list_font_files
from services.tools.documents.slide_parts import LINES_MAX, ROWS_MAX
from services.tools.errors import ToolFailed
from tests.support.programs import run_to_end

PIECES = (
    "# T\n\n",
    "###### deep\n",
    "- a\n",
    "        - nested\n",
    "999999999. x\n",
    "| a | b |\n|---|---|\n| 1 | **2** |\n\n",
    "| a | b |\n|---|---|\n| " + "长" * 3000 + " | x |\n\n",
    "![c](outputs/a.png)\n\n",
    "![](outputs/a.csv)\n\n![x](outputs/none.png)\n\n> ![q](outputs/a.png)\n\n- ![l](outputs/a.csv)\n\n",
    "|" + "a|" * 60 + "\n|" + "-|" * 60 + "\n|" + "b|" * 60 + "\n\n",
    "```py\n" + "x" * 2000 + "\n```\n",
    "**粗** *斜* ***x*** `码`",
    "<b></font><para>&amp;&",
    "\x00\x0b\ud7ff\ufffe\u2028\t😀",
    '[l](http://a"b) [**x**](http://a?b=1&c=2) [x](http://a\x01b) ![i](http://x)',
    "a" * 500,
    "word " * 300,
    "> " * 30 + "x\n\n",
    "- " * 30 + "x\n\n",
    "---\n",
    "\n\n",
)


needs_cjk_font = pytest.mark.skipif(
    not any(name.startswith(("NotoSansSC", "NotoSansCJK", "wqy", "DroidSansFallback")) for name in list_font_files()),
    reason="no CJK font here: pip install headrace[data]; PDFs in Chinese are NOT tried",
)


def read_files(**files: bytes) -> Callable[[str, int], bytes | None]:
    """Return a reader of outputs/a.png, outputs/a.csv and `files`."""
    picture = io.BytesIO()
    Image.new("RGB", (300, 200), "teal").save(picture, format="PNG")
    known = {"a.png": picture.getvalue(), "a.csv": b"city;mm\nParis;53.5\nRome;87\n", **files}
    return lambda path, bytes_max: known.get(path.removeprefix("outputs/"))


def read_pdf(data: bytes) -> str:
    return "\n".join(page.extract_text() for page in PdfReader(io.BytesIO(data)).pages)


def list_slides(data: bytes) -> list[Any]:
    return list(Presentation(io.BytesIO(data)).slides)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("**结论：**很好", "<strong>结论：</strong>很好"),
        ("例**“加粗”**例", "例<strong>“加粗”</strong>例"),
        ("한국어**[강조]**한국어 *`a`*文", "한국어<strong>[강조]</strong>한국어 <em><code>a</code></em>文"),
        ("a**(b)**c", "a**(b)**c"),
        ("** 中 **", "** 中 **"),
    ],
)
async def test_emphasis_is_recognized_in_scripts_without_spaces(text: str, expected: str) -> None:
    assert f"<p>{expected}</p>" in (await render_file(text, "html")).data.decode()


@needs_cjk_font
@pytest.mark.parametrize("texts", [3, pytest.param(15, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", SUFFIXES)
async def test_any_markdown_becomes_a_file(kind: str, texts: int) -> None:
    rng = random.Random(5)
    for _ in range(texts):
        file = await render_file("".join(rng.choices(PIECES, k=12)), kind, read_files())
        assert file.data


async def test_a_full_slide_continues_on_the_next() -> None:
    file = await render_file("# T\n\n## Many\n\n" + "- item\n" * 25 + "\n" + "long " * 400, "ppt")
    slides: list[Any] = list(Presentation(io.BytesIO(file.data)).slides)
    titles = [slide.shapes.title.text for slide in slides if slide.shapes.title is not None]
    lines = [len(slide.placeholders[1].text_frame.paragraphs) for slide in slides[1:]]
    assert titles[1:4] == ["Many"] * 3
    assert max(lines) <= LINES_MAX


async def test_slides_are_widescreen_with_tables_images_and_numbers() -> None:
    rows = "".join(f"| {number} | Station {number} |\n" for number in range(30))
    table = f"## Table\n\nAbove.\n\n| # | name |\n|--:|:-:|\n{rows}\n"
    figure = "## Figure\n\n- beside\n\n![Rain](outputs/a.png)\n\n## Data\n\n![Rain](outputs/a.csv)\n"
    file = await render_file(f"# T\n\n{table}{figure}", "ppt", read_files())
    presentation = Presentation(io.BytesIO(file.data))
    assert (presentation.slide_width, presentation.slide_height) == (Inches(13.333), Inches(7.5))
    slides = list_slides(file.data)
    tables = [shape.table for slide in slides for shape in slide.shapes if shape.has_table]
    assert [table.cell(0, 1).text for table in tables] == ["name"] * (len(tables) - 1) + ["mm"]
    assert all(len(table.rows) <= ROWS_MAX + 1 for table in tables)
    assert sum(len(table.rows) - 1 for table in tables[:-1]) == 30
    assert [cell.text for cell in tables[-1].rows[1].cells] == ["Paris", "53.5"]
    (figure,) = (slide for slide in slides if any(shape.shape_type == 13 for shape in slide.shapes))
    (picture,) = (shape for shape in figure.shapes if shape.shape_type == 13)
    assert figure.placeholders[1].text_frame.text == "beside"
    assert picture.left > figure.placeholders[1].left + figure.placeholders[1].width, "beside the text"
    numbers = [
        element.text
        for slide in slides[1:]
        for element in slide.element.iter("{*}t")
        if element.getparent().tag.endswith("fld")
    ]
    assert numbers == [str(number) for number in range(2, len(slides) + 1)]
    for slide in slides:
        assert all(shape.left + shape.width <= presentation.slide_width for shape in slide.shapes)


async def test_numbered_lists_use_the_slides_own_numbering() -> None:
    file = await render_file("# T\n\n## L\n\n3. three\n4. four\n", "ppt")
    slide = list_slides(file.data)[1]
    frame = slide.placeholders[1].text_frame
    starts = [element.get("startAt") for element in slide.element.iter("{*}buAutoNum")]
    assert ([paragraph.text for paragraph in frame.paragraphs], starts) == (["three", "four"], ["3", "4"])


@needs_cjk_font
async def test_a_pdf_embeds_all_of_its_fonts_and_its_text_can_be_copied() -> None:
    text = "# Mills 水车\n\n**粗体** *slanted* `code 码` かな 한국어 Привет Ελλάδα\n\n| 表 |\n|---|\n| 格 |\n"
    reader = PdfReader(io.BytesIO((await render_file(text, "pdf")).data))
    fonts: dict[str, Any] = {}
    for page in reader.pages:
        resources: Any = page["/Resources"]
        fonts |= {name: font.get_object() for name, font in resources["/Font"].items()}
    assert fonts
    for font in fonts.values():
        assert "/FontFile2" in font["/FontDescriptor"], font["/BaseFont"]
        assert "/ToUnicode" in font
    assert len({font["/BaseFont"] for font in fonts.values()}) == len(fonts), "readers tell fonts apart by these names"
    pdf_text = reader.pages[0].extract_text()
    assert all(
        word in pdf_text for word in ("Mills", "水车", "粗体", "码", "かな", "한국어", "Привет", "Ελλάδα", "表", "格")
    )
    assert [item["/Title"] for item in reader.outline if not isinstance(item, list)] == ["Mills 水车"]


async def test_a_long_table_repeats_its_header_on_numbered_pages() -> None:
    rows = "".join(f"| row{number} | x |\n" for number in range(100))
    file = await render_file(f"# T\n\n| Head | h |\n|---|---|\n{rows}", "pdf")
    pages = [page.extract_text() for page in PdfReader(io.BytesIO(file.data)).pages]
    assert len(pages) > 2
    assert all("Head" in page for page in pages)
    assert [f"{number} / {len(pages)}" in page for number, page in enumerate(pages, start=1)] == [True] * len(pages)
    text = "\n".join(pages)
    assert all(f"row{number}\n" in text for number in range(100))


async def test_an_image_with_huge_declared_dimensions_is_not_placed() -> None:
    """Pillow refuses the image before its size can be read."""
    chunks = (b"IHDR" + struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0), b"IDAT", b"IEND")
    parts = (struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in chunks)
    huge = b"\x89PNG\r\n\x1a\n" + b"".join(parts)
    file = await render_file("![x](outputs/b.png)\n", "pdf", read_files(**{"b.png": huge}))
    assert file.unplaced == ("outputs/b.png",)


async def test_images_and_csv_files_are_placed_and_others_reported() -> None:
    text = "# T\n\n![Rain](outputs/a.png)\n\n![Data](./outputs/a.csv)\n\n![gone](outputs/b.png)\n\n![fake](outputs/c.png)\n\n![far](https://x.example/d.png)\n"
    read = read_files(**{"c.png": b"no picture"})
    unplaced = ("outputs/b.png", "outputs/c.png", "https://x.example/d.png")
    pdf = await render_file(text, "pdf", read)
    assert pdf.unplaced == unplaced
    (image,) = (image for page in PdfReader(io.BytesIO(pdf.data)).pages for image in page.images)
    assert image.image is not None
    assert image.image.size == (300, 200)
    pdf_text = read_pdf(pdf.data)
    assert all(word in pdf_text for word in ("Rain", "Paris", "53.5", "gone", "far"))
    page = (await render_file(text, "html", read)).data.decode()
    assert page.count("<img ") == 1
    assert 'src="data:image/png;base64,' in page
    assert '<td style="text-align:right">53.5</td>' in page
    assert 'href="https://x.example/d.png"' in page


@pytest.mark.parametrize("charset", ["cp1252", "utf-16", "utf-8-sig"])
async def test_a_csv_file_is_read_in_its_charset(charset: str) -> None:
    read = read_files(**{"a.csv": "Stadt;mm\nKöln;53.5\nMünchen;87\n".encode(charset)})
    page = (await render_file("# T\n\n![Rain](outputs/a.csv)\n", "html", read)).data.decode()
    assert [f">{cell}<" in page for cell in ("Stadt", "Köln", "München")] == [True] * 3


async def test_words_no_font_can_show_fail_the_pdf_and_missing_symbols_are_counted() -> None:
    with pytest.raises(ToolFailed, match=r"no font for PHAGS-PA characters was found .*headrace\[data\]"):
        await render_file("# T ꡀ", "pdf")
    file = await render_file("# T\n\n\U0001fae0\U0001fae0 ok", "pdf")
    assert file.missing_chars == 2
    assert "?? ok" in read_pdf(file.data)


async def test_concurrently_rendered_documents_have_separate_fonts() -> None:
    texts = [f"# {word}\n\n**{word.lower()}**" for word in ("ABC", "XYZ", "Müller", "Quiz")]
    before = {*REGISTERED}
    files = await asyncio.gather(*(render_file(text, "pdf") for text in texts))
    for text, file in zip(texts, files, strict=True):
        word = text.split()[1]
        assert read_pdf(file.data).split("\n")[:2] == [word, word.lower()]
    assert {*REGISTERED} - before <= {"Helvetica"}, "none is kept"


async def test_code_keeps_its_spaces_and_long_lines_wrap() -> None:
    file = await render_file("```\ndef f():\n    return " + "x" * 100 + "\n```", "pdf")
    text = read_pdf(file.data)
    assert "    return " in text
    assert "x" * 100 in text.replace("\n", "")


async def test_a_long_pdf_has_many_pages() -> None:
    file = await render_file("# T\n\n" + "A paragraph of some words.\n\n" * 400, "pdf")
    reader = PdfReader(io.BytesIO(file.data))
    assert len(reader.pages) > 5
    assert reader.metadata is not None
    assert reader.metadata.title == "T"


def test_markdown_is_parsed_into_its_blocks() -> None:
    blocks = parse_blocks("# A *b*\n\ntext `c`\n\n1. one\n   - two\n\n> quote\n\n```\nx\n```\n\n|h|\n|-|\n|v|\n")
    heading, text, first_item, second_item, quote, code, table = blocks
    assert parse_blocks("![c](a%20b.png)\n\ntext ![i](x.png)")[0] == Picture("a%20b.png", "c")
    assert isinstance(heading, Heading)
    assert isinstance(text, Paragraph)
    assert isinstance(quote, Paragraph)
    assert quote.is_quote
    assert isinstance(first_item, Item)
    assert isinstance(second_item, Item)
    assert (join_text(heading.spans), join_text(text.spans), join_text(quote.spans)) == ("A b", "text c", "quote")
    assert [(item.depth, item.mark, join_text(item.spans)) for item in (first_item, second_item)] == [
        (0, "1.", "one"),
        (1, "•", "two"),
    ]
    assert code == Code("x")
    assert isinstance(table, Table)
    assert [[join_text(cell) for cell in row] for row in table.rows] == [["h"], ["v"]]


WITHOUT = """
import asyncio, sys
sys.modules["{library}"] = None  # as where the extra is not installed
from services.tools.documents.file_types import render_file
print(len(asyncio.run(render_file("# Mills", "html")).data) > 0)
asyncio.run(render_file("# Mills", "{kind}"))
"""


@pytest.mark.parametrize(("library", "kind"), [("reportlab", "pdf"), ("fontTools", "pdf"), ("pptx", "ppt")])
async def test_a_missing_library_is_named_with_its_extra(library: str, kind: str) -> None:
    program = WITHOUT.format(library=library, kind=kind)
    _, output, complaint = await run_to_end(sys.executable, "-c", program)
    assert output == b"True\n"
    assert f"ToolFailed: EXTRA_MISSING: {library}" in complaint.decode()
    assert "pip install 'headrace[documents]'" in complaint.decode()
