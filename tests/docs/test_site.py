"""The documentation site, with all pages in its navigation, and the change notes, which are short."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import ROOT

LINES_MAX = 60
"""Lines of the first page, which the site shows, too."""

GENERATED = {"reference/api.md", "decisions/README.md"}


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(
        r"^ +- (?:[\w ]+: )?([\w./-]+\.md)$", (ROOT / "docs" / "site" / "mkdocs.yml").read_text(), re.MULTILINE
    )
    docs = ROOT / "docs"
    pages = {str(page.relative_to(docs)) for page in docs.rglob("*.md") if page.parent.name != "decisions"}
    inside = {name for name in listed if not name.startswith("project/")}
    assert len(listed) == len(set(listed))
    assert inside == pages | GENERATED | {"README.md"}
    assert [name for name in listed if name.startswith("project/") and not (ROOT / name[8:]).exists()] == []


def test_the_first_page_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= LINES_MAX


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is missing: the site is NOT built")
def test_the_site_is_built_without_a_broken_link(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "docs.site", "0.0.0", str(tmp_path)], cwd=ROOT, check=True)
    assert (tmp_path / "0.0.0" / "reference" / "openapi.json").exists()
    assert '"version": "0.0.0"' in (tmp_path / "versions.json").read_text()


SENTENCES_MAX = 2
WORDS_MAX = 60


def test_a_change_is_at_most_two_sentences() -> None:
    for change in (ROOT / "changes").glob("*"):
        assert change.suffix == ".md"
        text = change.read_text().strip()
        assert len(re.findall(r"[.!?](?=\s|$)", text)) <= SENTENCES_MAX, change.name
        assert len(text.split()) <= WORDS_MAX, change.name


def test_the_changelog_has_no_unreleased_section() -> None:
    assert "Unreleased" not in (ROOT / "CHANGELOG.md").read_text()
