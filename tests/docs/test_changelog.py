"""CHANGELOG.md is what somebody reads before an upgrade: short, each change once, what is to be done first."""

from __future__ import annotations

from collections import Counter

from tests.deploy.manifests import ROOT

NOTES_BYTES_MAX = 24_000
"""Ten minutes of reading. Over it, merge lines of one subject, and leave out what no user notices."""


def test_the_next_release_is_short_and_says_everything_once() -> None:
    _, _, notes = (ROOT / "CHANGELOG.md").read_text().partition("\n## Unreleased\n")
    notes, _, _ = notes.partition("\n## ")
    assert len(notes.encode()) <= NOTES_BYTES_MAX
    lines = Counter(line for line in notes.splitlines() if line.startswith("- "))
    assert [line for line, times in lines.items() if times > 1] == []
