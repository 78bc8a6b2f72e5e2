"""Marks are found however the bytes are cut, and what is around them is neither lost nor shown twice."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from services.tools.interpreter.session import MarkedOutput
from services.tools.sandbox.command import Stream

TOKEN = "0123456789abcdef"


@given(st.binary(max_size=60), st.lists(st.integers(0, 100), max_size=6), st.binary(max_size=10))
def test_output_is_what_came_before_the_mark(before: bytes, cuts: list[int], behind: bytes) -> None:
    held: dict[Stream, bytes] = {}
    marked = MarkedOutput(TOKEN, held)
    data = before + marked.text.encode() + behind
    places = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    pieces = [data[start:end] for start, end in pairwise(places)]
    assert b"".join(marked.take_output("stdout", piece) for piece in pieces) == before
    assert not marked.is_complete
    assert held.get("stdout", b"") == behind
    marked.take_output("stderr", marked.text.encode())
    assert marked.is_complete


def test_zeros_that_begin_no_mark_are_output() -> None:
    marked = MarkedOutput(TOKEN, {})
    said = marked.take_output("stdout", b"a\0b\0") + marked.take_output("stdout", b"\0c" + b"d" * 40)
    assert said == b"a\0b\0\0c" + b"d" * 40


def test_what_came_behind_a_mark_belongs_to_the_next_piece() -> None:
    held: dict[Stream, bytes] = {}
    first = MarkedOutput(TOKEN, held)
    first.take_output("stdout", first.text.encode() + b"late ")
    second = MarkedOutput("f" * 16, held)
    assert second.take_output("stdout", b"and more") == b"late and more"
