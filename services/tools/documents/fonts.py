"""Which of a PDF's fonts has a character. None is embedded: readers have the Latin ones, and CJK ones or a stand-in.

The CJK fonts are of PDF's predefined character collections (ISO 32000-1, 9.7.5.2); the East Asian encodings that they
were made for tell what they hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby

from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont

LATIN = ""
"""The paragraph's own font."""

CJK = {"gbk": "STSong-Light", "shift_jis": "HeiseiMin-W3", "cp949": "HYSMyeongJo-Medium"}
"""By encoding, in the order to try: Chinese first. Greek and Cyrillic are in the first one, too."""

MISSING = "?"


def register() -> None:
    """Tell reportlab of the CJK fonts; may be repeated."""
    for name in CJK.values():
        if name not in pdfmetrics.getRegisteredFontNames():
            pdfmetrics.registerFont(UnicodeCIDFont(name))


def runs(text: str) -> Iterator[tuple[str, str]]:
    """The text in stretches of one font: its name and what it shows; MISSING stands for what no font has."""
    found = [_font(letter) for letter in text]
    for name, stretch in groupby(found, key=lambda pair: pair[0]):
        yield name, "".join(letter for _, letter in stretch)


def missing(text: str) -> int:
    """How many characters no font has."""
    return sum(_font(letter) == (LATIN, MISSING) and letter != MISSING for letter in text)


@lru_cache(maxsize=4096)
def _font(letter: str) -> tuple[str, str]:
    if _has("cp1252", letter):
        return LATIN, letter
    for encoding, name in CJK.items():
        if _has(encoding, letter):
            return name, letter
    return LATIN, MISSING


def _has(encoding: str, letter: str) -> bool:
    try:
        letter.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True
