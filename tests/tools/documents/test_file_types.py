"""Every kind of file from every kind of Markdown; what models write is not chosen by us."""

from __future__ import annotations

import io
import random
from typing import Any

import pytest
from pptx import Presentation
from pypdf import PdfReader

from services.tools.documents.blocks import Code, Heading, Item, Paragraph, Table, join_text, parse_blocks
from services.tools.documents.file_types import FILE_TYPES, render_file
from services.tools.documents.slides import LINES_MAX

PIECES = (
    "# T\n\n",
    "###### deep\n",
    "- a\n",
    "        - nested\n",
    "999999999. x\n",
    "| a | b |\n|---|---|\n| 1 | **2** |\n\n",
    "| a | b |\n|---|---|\n| " + "长" * 3000 + " | x |\n\n",
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


@pytest.mark.parametrize("kind", FILE_TYPES)
async def test_any_markdown_becomes_a_file(kind: str) -> None:
    rng = random.Random(5)
    for _ in range(15):
        made = await render_file("".join(rng.choices(PIECES, k=12)), kind)
        assert made.data


async def test_a_slide_that_is_full_goes_on_on_the_next() -> None:
    made = await render_file("# T\n\n## Many\n\n" + "- item\n" * 25 + "\n" + "long " * 400, "ppt")
    slides: list[Any] = list(Presentation(io.BytesIO(made.data)).slides)
    titles = [slide.shapes.title.text for slide in slides if slide.shapes.title is not None]
    lines = [len(slide.placeholders[1].text_frame.paragraphs) for slide in slides]
    assert titles[1:4] == ["Many"] * 3
    assert max(lines) <= LINES_MAX


async def test_a_long_pdf_has_many_pages() -> None:
    made = await render_file("# T\n\n" + "A paragraph of some words.\n\n" * 400, "pdf")
    reader = PdfReader(io.BytesIO(made.data))
    assert len(reader.pages) > 5
    assert reader.metadata is not None
    assert reader.metadata.title == "T"


def test_blocks_are_what_the_text_shows() -> None:
    blocks = parse_blocks("# A *b*\n\ntext `c`\n\n1. one\n   - two\n\n> quote\n\n```\nx\n```\n\n|h|\n|-|\n|v|\n")
    heading, text, one, two, quote, code, table = blocks
    assert isinstance(heading, Heading)
    assert isinstance(text, Paragraph)
    assert isinstance(quote, Paragraph)
    assert isinstance(one, Item)
    assert isinstance(two, Item)
    assert (join_text(heading.spans), join_text(text.spans), join_text(quote.spans)) == ("A b", "text c", "quote")
    assert [(item.depth, item.mark, join_text(item.spans)) for item in (one, two)] == [
        (0, "1.", "one"),
        (1, "•", "two"),
    ]
    assert code == Code("x")
    assert isinstance(table, Table)
    assert [[join_text(cell) for cell in row] for row in table.rows] == [["h"], ["v"]]
