"""Makes RE2 patterns, which match in linear time, of file name patterns.

`*`, `?` and `[a-z]` match within a name, `**` across folders, `{a,b}` one of several; without a slash a pattern is
about the name alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import re2

from services.tools.errors import ToolFailed

CHARS_MAX = 500

_PIECES = re.compile(r"\*\*/|\*\*|\*|\?|\[!?[^\]/\[\\]+\]|[{},]|.", re.DOTALL)
_MEANINGS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def compile_glob(glob: str | None) -> Callable[[str], bool]:
    """Compiles a pattern; without one each path matches. Raises ToolFailed."""
    if not glob:
        return bool
    if len(glob) > CHARS_MAX:
        raise ToolFailed(f"glob: longer than {CHARS_MAX} characters")
    options = re2.Options()
    options.log_errors = False
    options.dot_nl = True
    try:
        pattern = re2.compile(_to_expression(glob if "/" in glob else f"**/{glob}"), options)
    except re2.error:
        raise ToolFailed(
            f"glob: {glob!r} cannot be read; write for example *.py, src/**/*.md or *.{{csv,tsv}}"
        ) from None
    # A name may hold bytes that are not UTF-8, which Python keeps as lone surrogates.
    return lambda path: pattern.fullmatch(path.encode(errors="replace").decode()) is not None


def _to_expression(glob: str) -> str:
    depth, pieces = 0, list[str]()
    for piece in _PIECES.findall(glob.removeprefix("./").removeprefix("/")):
        if piece in _MEANINGS:
            pieces.append(_MEANINGS[piece])
        elif len(piece) > 2 and piece[0] == "[":
            pieces.append("[^" + piece[2:] if piece[1] == "!" else piece)
        elif piece == "{":
            depth += 1
            pieces.append("(?:")
        elif piece == "}" and depth:
            depth -= 1
            pieces.append(")")
        elif piece == "," and depth:
            pieces.append("|")
        else:
            pieces.append(re2.escape(piece))
    return "".join(pieces)
