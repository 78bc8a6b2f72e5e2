"""No page of the reference is older than the code it describes."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.generate.markdown import slug
from docs.generate.pages import PAGES, REGIONS, fill_page
from tests.support.pages import to_anchor


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_what_the_code_says(page: Path) -> None:
    assert fill_page(page.read_text()) == page.read_text(), "`make gen` writes it"


def test_every_region_is_used() -> None:
    text = "".join(page.read_text() for page in PAGES)
    assert [name for name in REGIONS if f"<!-- generated: {name} " not in text] == []


def test_a_region_is_replaced_and_the_rest_of_a_page_is_not() -> None:
    page = "before\n<!-- generated: budget-defaults -->\nold\n<!-- end -->\nafter\n"
    filled = fill_page(page)
    assert filled.startswith("before\n<!-- generated: budget-defaults -->\n\n| mode |")
    assert filled.endswith("\n\n<!-- end -->\nafter\n")
    assert "old" not in filled
    assert fill_page(filled) == filled


def test_the_generator_links_to_the_anchors_that_headings_get() -> None:
    for heading in ("`GET /api/chat`", "RATE_LIMITED", "What to do"):
        assert slug(heading) == to_anchor(heading)
