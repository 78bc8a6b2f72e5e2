"""What is generated of the reference; the check's step `generated` holds the pages to the code."""

from docs.generate.flows import trace_flow
from docs.generate.markdown import slug
from docs.generate.pages import PAGES, REGIONS, fill_page
from tests.support.pages import to_anchor


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


SPINE_FILES_MAX = 14


def test_a_question_reaches_its_provider_through_few_files_of_the_orchestrator() -> None:
    files = {file for _, spine in trace_flow("question") for file, _ in spine}
    of_orchestrator = {file for file in files if file.startswith("services/orchestrator/")}
    assert 5 <= len(of_orchestrator) <= SPINE_FILES_MAX, sorted(of_orchestrator)
