"""Decodes what a server sends, so that a character that is none costs no answer: it becomes U+FFFD."""

from __future__ import annotations

import codecs
import re

ENCODING = "headrace-json"
"""Name of the codec, which differs from UTF-8 in how it decodes."""

LINE_CHARS_MAX = 32 * 1024 * 1024
"""Limit of a line, in which a picture of 20 MB in base64 fits."""

_HEX = "[0-9a-fA-F]"
_HIGH, _LOW = rf"\\u[dD][89abAB]{_HEX}{{2}}", rf"\\u[dD][c-fC-F]{_HEX}{{2}}"
_ESCAPE = re.compile(
    rf"{_HIGH}{_LOW}|(?P<open>(?:{_HIGH}|(?:{_HIGH})?\\(?:u{_HEX}{{0,3}})?)\Z)|(?P<half>{_HIGH}|{_LOW})|\\.", re.DOTALL
)
"""An escape of a JSON string: a surrogate pair, one that goes on with the next piece, half a pair, any other."""


class JsonDecoder(codecs.IncrementalDecoder):
    """Decodes JSON in UTF-8 piece by piece.

    Raises:
        ValueError: A line is longer than LINE_CHARS_MAX.
    """

    def __init__(self, errors: str = "replace") -> None:
        super().__init__(errors)
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._open = ""
        """An escape whose end has not come."""
        self._line_chars = 0

    def decode(self, input: bytes, final: bool = False) -> str:  # type: ignore[override]
        text = self._open + self._utf8.decode(input, final)
        self._open = ""
        if "\\" in text:
            text = _ESCAPE.sub(self._replace_half, text)
        if final:
            text, self._open = text + "\\ufffd" * bool(self._open), ""
        last = text.rfind("\n")
        self._line_chars = len(text) - last - 1 if last >= 0 else self._line_chars + len(text)
        if self._line_chars > LINE_CHARS_MAX:
            raise ValueError(f"its answer is longer than {LINE_CHARS_MAX:,} characters")
        return text

    def _replace_half(self, found: re.Match[str]) -> str:
        match found.lastgroup:
            case "open":
                self._open = found.group()
                return ""
            case "half":
                return "\\ufffd"
            case _:
                return found.group()


def _find_codec(name: str) -> codecs.CodecInfo | None:
    if name.replace("_", "-") != ENCODING:
        return None
    return codecs.CodecInfo(codecs.utf_8_encode, codecs.utf_8_decode, incrementaldecoder=JsonDecoder, name=ENCODING)


codecs.register(_find_codec)
