"""Names and files that a message mentions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.orchestrator.setup import mentions


@pytest.mark.parametrize(
    ("message", "names"),
    [
        ("@_bash_ please", ["_bash_"]),
        ("use @web_search, then @report.", ["web_search", "report"]),
        ("请用@fetch_web查一下", ["fetch_web"]),
        ("（@pdf）与@pdf。", ["pdf"]),
        ("(@a) [@b] @c\n@d", ["a", "b", "c", "d"]),
        ("@Report and @report", ["report"]),
        ("@files.search-all", ["files.search-all"]),
        ("write to me@example.com or first.last@example.com", []),
        ("a+b@example.com, x_@example.com, 10%@x.y", []),
        ("@name@example.com", []),
        ("nothing @ all @", []),
        ("@@twice", []),
    ],
)
def test_names_begin_where_no_email_address_can(message: str, names: list[str]) -> None:
    assert mentions.find_names(message) == names


PATHS = ["uploads/report.pdf", "uploads/my notes.txt", "uploads/2026/data.v2.csv", "uploads/图表.png", "uploads/a."]


@pytest.mark.parametrize(
    ("message", "paths"),
    [
        ("read #report.pdf", ["uploads/report.pdf"]),
        ("read #report.pdf.", ["uploads/report.pdf"]),
        ("read #a.", ["uploads/a."]),
        ('and #"my notes.txt", please', ["uploads/my notes.txt"]),
        ("#2026/data.v2.csv or #data.v2.csv", ["uploads/2026/data.v2.csv"]),
        ("#uploads/report.pdf", ["uploads/report.pdf"]),
        ("看#图表.png。", ["uploads/图表.png"]),
        ("（#图表.png）#report.pdf", ["uploads/图表.png", "uploads/report.pdf"]),
        ("issue #12, # heading, ##report.pdf, x#report.pdf, &#report.pdf", []),
        ("#../report.pdf #gone.pdf", []),
    ],
)
def test_files_are_uploads_by_name_or_path(message: str, paths: list[str]) -> None:
    assert mentions.find_files(message, PATHS) == paths


@pytest.mark.parametrize(
    ("message", "names"),
    [
        ("#report.pdf and #gone.pdf.", ["gone.pdf"]),
        ('#"my notes.txt" or #"your notes"', ["your notes"]),
        ("issue #12, #topic, #v1.2, #1.5, # heading, x#gone.pdf", []),
        ("#../report.pdf #../report.pdf", ["../report.pdf"]),
    ],
)
def test_names_that_are_meant_as_files_are_missed(message: str, names: list[str]) -> None:
    assert mentions.find_missing_files(message, PATHS) == names


@given(st.text(alphabet='@#ab._-" 中/', max_size=200))
def test_any_text_is_read(text: str) -> None:
    assert len(mentions.find_names(text)) <= mentions.MENTIONS_MAX
    assert set(mentions.find_files(text, ["uploads/a", "uploads/b a"])) <= {"uploads/a", "uploads/b a"}
