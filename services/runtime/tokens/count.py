"""What text, messages and requests cost in tokens, offline, in time linear in their size.

One idea keeps it linear: text is cut into pieces of bounded size before tiktoken sees it. A cut is made where the
encodings cut anyway, so that it changes no count; only a run without such a place (base64, a 100,000-character word)
is cut in the middle.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from services.runtime.tokens.encodings import EncodingName, encoding
from services.runtime.tokens.image_tokens import image_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.v1 import llm_pb2

ESTIMATE_ENCODING: EncodingName = "o200k_base"
"""Counts for models whose own encoding is not known, times a ratio."""

ESTIMATE_RATIO = 1.15
"""That ratio, until reported usage says better."""

PIECE_CHARS_MAX = 16_384
"""What tiktoken gets at once. It takes n log n for one long word, and panics (RuntimeError of its pattern's stack) on
a million blanks in o200k_base (0.14)."""

MESSAGE_TOKENS = 4
LIST_TOKENS = 2

TOOL_TOKENS = 7
TOOLS_TOKENS = 12
"""For a tool, and for the list of them, beside their texts: the constants of OpenAI's cookbook, "How to count tokens
with tiktoken" (2024). The schema is counted as the JSON it is, a little more than the form that the model reads."""

# After a letter or digit, both patterns end a match before white space and before these, whatever is around; not
# before an apostrophe ('s), a mark or another letter. No match spans the cut, and none before it looks beyond it.
_BEFORE = r"\s.,;:!?\"()\[\]{}<>=+*/\\|&%$#@`~^_\-…—“”、。，！？；：（）《》「」"
CUT = re.compile(rf".*[^\W_](?=[{_BEFORE}])", re.DOTALL)


def count_text(text: str, name: EncodingName) -> int:
    """Tokens of `text`, as tiktoken counts them.

    Exact, but for runs of more than PIECE_CHARS_MAX / 2 characters without a place to cut: each cut inside one may
    add or save a token or two.
    """
    bpe = encoding(name)
    if len(text) <= PIECE_CHARS_MAX:
        return len(bpe.encode_ordinary(text))
    return sum(len(bpe.encode_ordinary(piece)) for piece in pieces(text))


def count_message(message: llm_pb2.Message, name: EncodingName) -> int:
    """Tokens of one message in a request: 4, its role, its reasoning, text and images, and its calls."""
    tokens = MESSAGE_TOKENS + count_text(message.role, name)
    for part in message.content:
        tokens += image_tokens(part.image) if part.HasField("image") else count_text(part.text, name)
    for call in message.tool_calls:
        tokens += count_text(call.name, name) + count_text(call.arguments, name) + count_text(call.id, name)
    return tokens + count_text(message.reasoning_content, name)


def count_request(messages: Iterable[llm_pb2.Message], tools: Iterable[llm_pb2.ToolSchema], name: EncodingName) -> int:
    """Tokens that a request with these would cost: 2, its messages, its tools."""
    tokens = LIST_TOKENS + sum(count_message(message, name) for message in messages)
    schemas = [_count_tool(tool, name) for tool in tools]
    return tokens + sum(schemas) + (TOOLS_TOKENS if schemas else 0)


def _count_tool(tool: llm_pb2.ToolSchema, name: EncodingName) -> int:
    return TOOL_TOKENS + sum(count_text(text, name) for text in (tool.name, tool.description, tool.parameters))


def pieces(text: str) -> Iterator[str]:
    """`text` in pieces of half to the whole of PIECE_CHARS_MAX, but for the last."""
    start = 0
    while len(text) - start > PIECE_CHARS_MAX:
        end = start + PIECE_CHARS_MAX
        cut = CUT.match(text, start + PIECE_CHARS_MAX // 2, end)
        stop = cut.end() if cut else end
        yield text[start:stop]
        start = stop
    yield text[start:]
