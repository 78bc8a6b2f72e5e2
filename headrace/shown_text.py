"""Makes untrusted text safe to review: characters that would hide or reorder text become visible escapes.

What a person approves must be what runs, so a right-to-left override, a zero-width space or a control character
must not change how arguments look. Escapes are JSON's, and such characters occur only in JSON strings, so
escaped JSON text keeps its value. The console's elements/shown_text.js does the same;
tests/shown_text_cases.json tests both.
"""

from __future__ import annotations

import re
from itertools import groupby

SHOWN_CHARS_MAX = 32_768
"""Length up to which the arguments of a call that needs approval are shown whole; longer ones must be opened
first.
"""

_ISOLATE, _END = "\u2068", "\u2069"

_BLANK = frozenset(
    [
        *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0),
        *(0x1107F, 0x13441, 0x13442, 0x16FE4, 0x1D159),
        *(*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)),
    ]
)
"""Characters that count as printable but show nothing: Unicode's Default_Ignorable_Code_Point, the Braille blank, and
joiners, fillers and blanks of Brahmi, Egyptian hieroglyphs, Khitan and music.
"""

_RIGHT_TO_LEFT = (
    *(range(0x0590, 0x0900), range(0xFB1D, 0xFE00), range(0xFE70, 0xFEFF)),
    *(range(0x10800, 0x11000), range(0x1E800, 0x1F000)),
)
"""Blocks of scripts that are written from right to left."""


class _Escapes(dict[int, int | str]):
    def __missing__(self, code: int) -> int | str:
        return code if chr(code).isprintable() and code not in _BLANK else _escape(code)


def _escape(code: int) -> str:
    units = chr(code).encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


_ESCAPES = _Escapes({code: code for code in (*b"\t\n", *range(0x20, 0x7F))})


def make_visible(text: str) -> str:
    """Return the text with an escape for each character that shows nothing or moves others; tab and newline are
    kept.
    """
    return text.translate(_ESCAPES)


_PADDING = re.compile(r"(?<=\S) {33,}")


def make_arguments_visible(text: str) -> str:
    """Return a call's arguments made visible, with an escape for each space of a run that would push what follows it
    out of sight.
    """
    return _PADDING.sub(lambda run: "\\u0020" * len(run[0]), make_visible(text))


def isolate(text: str) -> str:
    """Return the text with isolates around each run of right-to-left letters, so that their neighbours stay in
    place.
    """
    if text.isascii():
        return text
    groups = groupby(text, lambda char: any(ord(char) in block for block in _RIGHT_TO_LEFT))
    runs = ((is_moving, "".join(run)) for is_moving, run in groups)
    shown = "".join(f"{_ISOLATE}{run}{_END}" if is_moving else run for is_moving, run in runs)
    return shown.replace(f"{_END} {_ISOLATE}", " ")  # words of a sentence keep their order


def shorten_line(text: str, chars_max: int) -> str:
    """Return the text on one line, cut to `chars_max`, with the number of missing characters."""
    line = " ".join(make_visible(text).split())
    missing = len(line) - chars_max
    return line if missing <= 0 else f"{line[:chars_max]}… ({missing:,} more characters)"
