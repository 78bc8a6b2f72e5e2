"""The generator of the reference; the step `generated` of the check compares the pages with the code."""

from docs.generate.flows import trace_flow
from docs.generate.markdown import slug
from docs.generate.pages import PAGES, REGIONS, fill_page
from tests.support.pages import to_anchor


def test_every_region_is_used() -> None:
    text = "".join(page.read_text() for page in PAGES)
    assert [name for name in REGIONS if f"<!-- generated: {name} " not in text] == []


def test_only_the_generated_region_of_a_page_is_replaced() -> None:
    page = "before\n<!-- generated: budget-defaults -->\nold\n<!-- end -->\nafter\n"
    filled = fill_page(page)
    assert filled.startswith("before\n<!-- generated: budget-defaults -->\n\n| mode |")
    assert filled.endswith("\n\n<!-- end -->\nafter\n")
    assert "old" not in filled
    assert fill_page(filled) == filled


def test_the_generator_links_to_the_anchors_of_headings() -> None:
    for heading in ("`GET /api/chat`", "RATE_LIMITED", "What to do"):
        assert slug(heading) == to_anchor(heading)


SPINE_FILES_MAX = 14


def test_a_question_reaches_its_provider_through_few_orchestrator_files() -> None:
    files = {file for _, spine in trace_flow("question") for file, _ in spine}
    of_orchestrator = {file for file in files if file.startswith("services/orchestrator/")}
    assert 5 <= len(of_orchestrator) <= SPINE_FILES_MAX, sorted(of_orchestrator)
