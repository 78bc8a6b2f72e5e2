"""Tokens of text, messages and requests, counted offline in linear time.

Text is cut into bounded pieces where the encodings cut anyway; only a run without such a place (base64, a very long
word) is cut in the middle.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from services.runtime.tokens.encodings import EncodingName, encoding
from services.runtime.tokens.media_tokens import count_media

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.v1 import llm_pb2

ESTIMATE_ENCODING: EncodingName = "o200k_base"
"""Encoding of estimates, for models whose own is unknown."""

ESTIMATE_RATIO = 1.15
"""Factor of estimates, until reported usage gives a better one."""

PIECE_CHARS_MAX = 16_384
"""Characters that tiktoken gets at once; it takes n log n for a long word and panics on a million blanks (0.14)."""

MESSAGE_TOKENS = 4
LIST_TOKENS = 2

TOOL_TOKENS = 7
TOOLS_TOKENS = 12
"""Tokens of a tool and of the list, beside the texts (OpenAI's cookbook, "How to count tokens with tiktoken", 2024)."""

# After a letter or digit, both patterns end a match before white space and before these, whatever is around; not
# before an apostrophe ('s), a mark or another letter. No match spans the cut, and none before it looks beyond it.
_BEFORE = r"\s.,;:!?\"()\[\]{}<>=+*/\\|&%$#@`~^_\-…—“”、。，！？；：（）《》「」"
CUT = re.compile(rf".*[^\W_](?=[{_BEFORE}])", re.DOTALL)


def count_text(text: str, name: EncodingName) -> int:
    """Return the tokens of `text`; a cut inside a long run may add or save one or two."""
    if not text:
        return 0
    bpe = encoding(name)
    if len(text) <= PIECE_CHARS_MAX:
        return len(bpe.encode_ordinary(text))
    return sum(len(bpe.encode_ordinary(piece)) for piece in pieces(text))


def count_message(message: llm_pb2.Message, name: EncodingName) -> int:
    tokens = MESSAGE_TOKENS + _count_role(message.role, name)
    for part in message.content:
        tokens += count_text(part.text, name) if part.text else count_media(part)
    for call in message.tool_calls:
        tokens += count_text(call.name, name) + count_text(call.arguments, name) + count_text(call.id, name)
    return tokens + count_text(message.reasoning_content, name)


@lru_cache(maxsize=32)  # there are five; what a request calls so has no bound
def _count_role(role: str, name: EncodingName) -> int:
    return count_text(role, name)


def count_request(messages: Iterable[llm_pb2.Message], tools: Iterable[llm_pb2.ToolSchema], name: EncodingName) -> int:
    tokens = LIST_TOKENS + sum(count_message(message, name) for message in messages)
    schemas = [
        TOOL_TOKENS + sum(count_text(text, name) for text in (tool.name, tool.description, tool.parameters))
        for tool in tools
    ]
    return tokens + sum(schemas) + (TOOLS_TOKENS if schemas else 0)


def pieces(text: str) -> Iterator[str]:
    """Cut `text` into pieces of half to the whole of PIECE_CHARS_MAX."""
    start = 0
    while len(text) - start > PIECE_CHARS_MAX:
        end = start + PIECE_CHARS_MAX
        cut = CUT.match(text, start + PIECE_CHARS_MAX // 2, end)
        stop = cut.end() if cut else end
        yield text[start:stop]
        start = stop
    yield text[start:]
