"""Decodes text of servers, whose declared charset is often absent, wrong or no charset."""

from __future__ import annotations

import codecs

from services.tools.errors import ToolFailed
from services.tools.workspace.content_types import detect_content_charset

WEB_CHARSETS = {
    **dict.fromkeys(("ascii", "iso8859-1"), "windows-1252"),
    **dict.fromkeys(("gb2312", "gbk"), "gb18030"),
    "euc_kr": "cp949",
    "iso8859-9": "windows-1254",
    "shift_jis": "cp932",
}
"""Larger charsets that browsers use for declared ones (WHATWG Encoding, 4.2), by Python's names."""

NO_CHARSETS = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})


def is_utf8(body: bytes) -> bool:
    """Return whether a body is text in UTF-8, whatever its type."""
    found = detect_content_charset(body)
    return found is not None and found.is_utf8


def find_charset(declared: str | None) -> str | None:
    """Return Python's name of the declared charset; None if there is none, or no such one."""
    try:
        # Python has codecs that are no charsets: some refuse to replace what is wrong, punycode is slow without bound.
        name = codecs.lookup(declared or "").name
    except LookupError:
        return None
    return None if name in NO_CHARSETS else WEB_CHARSETS.get(name, name)


def decode_answer(body: bytes, declared: str | None) -> str:
    """Decode by the byte order mark, the declared charset, or else the content; blocks. Raises ToolFailed."""
    found, charset = detect_content_charset(body), find_charset(declared)
    if found is None and not (charset or "").startswith(("utf-16", "utf-32")):
        raise ToolFailed("the answer is declared as text but is not")
    if charset is None or (found is not None and found.mark):
        assert found is not None
        return body[len(found.mark) :].decode(found.name, errors="replace")
    return body.decode(charset, errors="replace")
