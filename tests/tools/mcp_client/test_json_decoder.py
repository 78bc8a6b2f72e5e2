"""Bytes of servers, in pieces of any size."""

import json
from itertools import product

import pytest

from services.tools.mcp_client.http import LINE_CHARS_MAX, JsonDecoder

PARTS = ("a", r"\\", r"\n", r"\ud83d", r"\ude00", r"\u0041", "é", "😀")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 100])
def test_any_json_is_decoded_to_json_that_can_be_stored(size: int) -> None:
    for parts in product(PARTS, repeat=3):
        given = json.dumps("x")[:-1].encode() + "".join(parts).encode() + b'\xff"'
        decoder = JsonDecoder()
        text = "".join(decoder.decode(given[at : at + size]) for at in range(0, len(given), size))
        whole = "".join(parts).replace(r"\ud83d\ude00", "😀")
        for half in (r"\ud83d", r"\ude00"):
            whole = whole.replace(rf"\\{half}", "\0").replace(half, "\ufffd").replace("\0", rf"\\{half}")
        value = json.loads(text)
        value.encode()
        if r"\\" not in parts:
            assert value == json.loads(f'"x{whole}\ufffd"')


def test_the_end_of_what_was_cut_inside_an_escape_is_no_part_of_the_next() -> None:
    assert JsonDecoder().decode(rb'"\ud83d\u', final=True) == '"' + r"\ufffd"


def test_a_line_without_an_end_is_refused() -> None:
    decoder = JsonDecoder()
    decoder.decode(b"x" * LINE_CHARS_MAX + b"\n" + b"x" * LINE_CHARS_MAX)
    with pytest.raises(ValueError, match="longer than"):
        decoder.decode(b"x")
