"""Reads the marks of emphasis next to letters of scripts that write no spaces, where CommonMark finds none.

`**结论：**好` would stay as it is written (https://github.com/commonmark/commonmark-spec/issues/650). A letter or mark
of such a script separates like punctuation from outside, and is no punctuation inside, as in the console.
"""

from __future__ import annotations

import unicodedata

from markdown_it import MarkdownIt
from markdown_it.rules_inline.state_inline import Delimiter, StateInline

MARK = "*"


def add_emphasis(parser: MarkdownIt) -> MarkdownIt:
    parser.inline.ruler.before("emphasis", "emphasis_without_spaces", _read_run)
    return parser


def _read_run(state: StateInline, silent: bool) -> bool:
    if silent or state.src[state.pos] != MARK:
        return False
    end = state.pos
    while end < state.posMax and state.src[end] == MARK:
        end += 1
    before = state.src[state.pos - 1] if state.pos else " "
    after = state.src[end] if end < state.posMax else " "
    if not (_is_cjk(before) or _is_cjk(after)):
        return False  # the library's own rule reads it
    count = end - state.pos
    for _ in range(count):
        state.push("text", "", 0).content = MARK
        token = len(state.tokens) - 1
        state.delimiters.append(
            Delimiter(ord(MARK), count, token, -1, open=_may_enclose(after, before), close=_may_enclose(before, after))
        )
    state.pos = end
    return True


def _may_enclose(inside: str, outside: str) -> bool:
    """Return whether a run between two letters may begin or end emphasis on the inner side."""
    if inside.isspace():
        return False
    return not _is_punctuation(inside) or outside.isspace() or _is_punctuation(outside) or _is_cjk(outside)


def _is_cjk(letter: str) -> bool:
    # Emoji are wide, too, and symbols.
    return unicodedata.east_asian_width(letter) in "WFH" and unicodedata.category(letter) not in ("So", "Zs")


def _is_punctuation(letter: str) -> bool:
    return unicodedata.category(letter)[0] in "PS" and not _is_cjk(letter)
