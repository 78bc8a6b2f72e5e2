"""CHANGELOG.md and the changes of the next release are what somebody reads before an upgrade: they are short."""

import re

from tests.deploy.manifests import ROOT

SENTENCES_MAX = 2
WORDS_MAX = 60


def test_a_change_is_at_most_two_sentences() -> None:
    for change in (ROOT / "changes").glob("*"):
        assert change.suffix == ".md"
        text = change.read_text().strip()
        assert len(re.findall(r"[.!?](?=\s|$)", text)) <= SENTENCES_MAX, change.name
        assert len(text.split()) <= WORDS_MAX, change.name


def test_changes_are_not_written_into_the_changelog_by_hand() -> None:
    assert "Unreleased" not in (ROOT / "CHANGELOG.md").read_text()
