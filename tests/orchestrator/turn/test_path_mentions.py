"""Which files a conversation mentions."""

from __future__ import annotations

import time

import pytest

from headrace.v1 import llm_pb2
from services.orchestrator.turn.compacting.path_mentions import PathMentions

PATHS = frozenset({"a.py", "src/a.py", "my notes.md", "报告.md", "销售报告.md", "data.tar", "data.tar.gz", "Makefile"})


def ranked(*texts: str) -> list[str]:
    mentions = PathMentions(PATHS)
    for text in texts:
        mentions.read_text(text)
    return mentions.rank_paths()


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
def test_a_mention_is_the_longest_name_that_exists(text: str, found: list[str]) -> None:
    assert ranked(text) == found


def test_more_mentions_go_before_later_ones() -> None:
    assert ranked("a.py a.py", "Makefile", "src/a.py") == ["a.py", "src/a.py", "Makefile"]


def test_what_a_tool_wrote_goes_first_and_its_content_is_no_mention() -> None:
    mentions = PathMentions(PATHS)
    mentions.read_call(call("write_file", '{"path":"./a.py","content":"Makefile Makefile"}'))
    mentions.read_text("报告.md 报告.md")
    mentions.read_call(call("_bash_", '{"command":"cat data.tar | head"}'))
    mentions.read_call(call("any", '{"deep":[{"x":["src/a.py"]}]}'))
    assert mentions.rank_paths() == ["a.py", "报告.md", "src/a.py", "data.tar"]


@pytest.mark.parametrize("arguments", ["", "{", "[1]", "null", '{"path":7}', "[" * 500 + "]" * 500])
def test_odd_arguments_mention_nothing(arguments: str) -> None:
    mentions = PathMentions(PATHS)
    mentions.read_call(call("write_file", arguments))
    mentions.read_call(call("any", arguments))
    assert mentions.rank_paths() == []


@pytest.mark.parametrize("text", ["报.a" * 250_000, "`" * 1_000_000, "a" * 1_000_000, "报 .a" * 200_000])
def test_a_million_characters_take_no_time(text: str) -> None:
    started = time.thread_time()
    ranked(text)
    assert time.thread_time() - started < 3
