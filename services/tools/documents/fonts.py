"""Chooses fonts of a PDF by character; none is embedded, because readers have them or a stand-in.

The CJK fonts are of predefined character collections (ISO 32000-1, 9.7.5.2); East Asian encodings tell what they hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby

from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont

LATIN = ""

CJK = {"gbk": "STSong-Light", "shift_jis": "HeiseiMin-W3", "cp949": "HYSMyeongJo-Medium"}
"""Fonts by encoding, in the order to try; the first has Greek and Cyrillic, too."""

MISSING = "?"


def register_fonts() -> None:
    for name in CJK.values():
        if name not in pdfmetrics.getRegisteredFontNames():
            pdfmetrics.registerFont(UnicodeCIDFont(name))


def split_by_font(text: str) -> Iterator[tuple[str, str]]:
    pairs = [_choose_font(letter) for letter in text]
    for name, stretch in groupby(pairs, key=lambda pair: pair[0]):
        yield name, "".join(letter for _, letter in stretch)


def count_missing(text: str) -> int:
    return sum(_choose_font(letter) == (LATIN, MISSING) and letter != MISSING for letter in text)


@lru_cache(maxsize=4096)
def _choose_font(letter: str) -> tuple[str, str]:
    if _can_encode("cp1252", letter):
        return LATIN, letter
    for encoding, name in CJK.items():
        if _can_encode(encoding, letter):
            return name, letter
    return LATIN, MISSING


def _can_encode(encoding: str, letter: str) -> bool:
    try:
        letter.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True
