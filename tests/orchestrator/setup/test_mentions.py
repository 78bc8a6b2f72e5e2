"""Names and files mentioned in a message or a conversation."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.v1 import llm_pb2
from services.orchestrator.setup import query_options
from services.orchestrator.turn.compacting.mentioned_files import PathMentions


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
def test_names_are_found_after_an_at_sign_but_not_in_email_addresses(message: str, names: list[str]) -> None:
    assert query_options.find_names(message) == names


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
def test_mentioned_files_are_uploads_by_name_or_path(message: str, paths: list[str]) -> None:
    assert query_options.find_files(message, PATHS) == paths


@pytest.mark.parametrize(
    ("message", "names"),
    [
        ("#report.pdf and #gone.pdf.", ["gone.pdf"]),
        ('#"my notes.txt" or #"your notes"', ["your notes"]),
        ("issue #12, #topic, #v1.2, #1.5, # heading, x#gone.pdf", []),
        ("#../report.pdf #../report.pdf", ["../report.pdf"]),
    ],
)
def test_mentioned_files_that_do_not_exist_are_reported_as_missing(message: str, names: list[str]) -> None:
    assert query_options.find_missing_files(message, PATHS) == names


@given(st.text(alphabet='@#ab._-" 中/', max_size=200))
def test_any_text_is_searched_for_mentions_within_limits(text: str) -> None:
    assert len(query_options.find_names(text)) <= query_options.MENTIONS_MAX
    assert set(query_options.find_files(text, ["uploads/a", "uploads/b a"])) <= {"uploads/a", "uploads/b a"}


FILES = frozenset({"a.py", "src/a.py", "my notes.md", "报告.md", "销售报告.md", "data.tar", "data.tar.gz", "Makefile"})


def rank_mentions(*texts: str) -> list[str]:
    query_options = PathMentions(FILES)
    for text in texts:
        query_options.read_text(text)
    return query_options.rank_paths()


def call(name: str, arguments: str) -> llm_pb2.ToolCall:
    return llm_pb2.ToolCall(id="c", name=name, arguments=arguments)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see src/a.py.", ["src/a.py"]),
        ("./a.py:12, 'Makefile'!", ["Makefile", "a.py"]),
        ("```python\n# a.py\n```", ["a.py"]),
        ("data.py and xa.py and /src/a.pyx", []),
        ("open `my notes.md`", ["my notes.md"]),
        ("请看报告.md。", ["报告.md"]),
        ("请看销售报告.md文件", ["销售报告.md"]),
        ("看src/a.py和data.tar.gz", ["data.tar.gz", "src/a.py"]),
        ("看data.py", []),
        ("", []),
    ],
)
def test_a_mention_is_the_longest_existing_file_name(text: str, found: list[str]) -> None:
    assert rank_mentions(text) == found


def test_files_are_ranked_by_number_of_mentions_then_by_recency() -> None:
    assert rank_mentions("a.py a.py", "Makefile", "src/a.py") == ["a.py", "src/a.py", "Makefile"]


def test_written_files_rank_first_and_their_content_is_not_searched() -> None:
    query_options = PathMentions(FILES)
    query_options.read_call(call("write_file", '{"path":"./a.py","content":"Makefile Makefile"}'))
    query_options.read_text("报告.md 报告.md")
    query_options.read_call(call("_bash_", '{"command":"cat data.tar | head"}'))
    query_options.read_call(call("any", '{"deep":[{"x":["src/a.py"]}]}'))
    assert query_options.rank_paths() == ["a.py", "报告.md", "src/a.py", "data.tar"]


@pytest.mark.parametrize("arguments", ["", "{", "[1]", "null", '{"path":7}', "[" * 500 + "]" * 500])
def test_invalid_call_arguments_mention_no_file(arguments: str) -> None:
    query_options = PathMentions(FILES)
    query_options.read_call(call("write_file", arguments))
    query_options.read_call(call("any", arguments))
    assert query_options.rank_paths() == []


@pytest.mark.parametrize("text", ["报.a" * 250_000, "`" * 1_000_000, "a" * 1_000_000, "报 .a" * 200_000])
def test_a_million_characters_are_searched_within_seconds(text: str) -> None:
    started = time.thread_time()
    rank_mentions(text)
    assert time.thread_time() - started < 3
