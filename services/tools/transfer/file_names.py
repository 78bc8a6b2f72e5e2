"""Makes names of uploaded files safe for every file system and every list."""

from __future__ import annotations

import unicodedata

from headrace.errors import InvalidRequest

BYTES_MAX = 255

_FORBIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Controls, invisible format characters (which can show a name backwards), half surrogates, line ends."""

_JOINERS = frozenset("\u200c\u200d")
"""Emoji and several scripts are written with these invisible characters."""


def check_name(name: str) -> str:
    """Returns the composed form of a name; raises InvalidRequest naming the broken rule."""
    name = unicodedata.normalize("NFC", name)
    if not name.strip() or name.strip(". ") == "":
        raise InvalidRequest.of("name", "must be a file name")
    if "/" in name or "\\" in name:
        raise InvalidRequest.of("name", "must be a file name without a path")
    if any(unicodedata.category(letter) in _FORBIDDEN and letter not in _JOINERS for letter in name):
        raise InvalidRequest.of("name", "must not have control or invisible characters")
    if name.startswith("."):
        raise InvalidRequest.of("name", "must not begin with a dot")
    if len(name.encode()) > BYTES_MAX:
        raise InvalidRequest.of("name", f"must not be longer than {BYTES_MAX} bytes")
    return name


def number_name(name: str, number: int) -> str:
    """Makes a (2).txt of a.txt; a long name is shortened before its suffix."""
    if number == 1:
        return name
    stem, dot, suffix = name.rpartition(".")
    if not stem or len(suffix) > 16:
        stem, dot, suffix = name, "", ""
    end = f" ({number}){dot}{suffix}"
    return stem.encode()[: BYTES_MAX - len(end.encode())].decode(errors="ignore") + end
