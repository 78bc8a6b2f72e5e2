"""Counts tokens of text, messages and requests, offline in linear time, with OpenAI's encodings.

Encodings are loaded on demand, and dropped after a while without use. Their vocabularies and patterns are from
tiktoken_ext/openai_public.py of tiktoken 0.14; tests compare them. Text is cut into bounded pieces where the encodings
cut anyway; only a run without such a place (base64, a very long word) is cut in the middle.
"""

from __future__ import annotations

import binascii
import gzip
import hashlib
import re
import threading
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Literal, TypeAlias

from services.runtime.tokens.media_tokens import count_media

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import tiktoken

    from headrace.v1 import llm_pb2


EncodingName: TypeAlias = Literal["cl100k_base", "o200k_base"]

_DEFINITIONS: dict[EncodingName, tuple[str, str]] = {
    "cl100k_base": (
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
        r"|\s+(?!\S)|\s",
    ),
    "o200k_base": (
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
}

_loaded: dict[EncodingName, tiktoken.Encoding] = {}
_loading = threading.Lock()
_used: set[EncodingName] = set()
"""Encodings used since the last `drop_unused`."""


def encoding(name: EncodingName) -> tiktoken.Encoding:
    """Return the encoding, shared by all threads; a call that loads it takes 0.1 to 0.3 s and 20 (cl100k) or 40 MB
    (o200k)."""
    _used.add(name)
    if (known := _loaded.get(name)) is not None:
        return known
    with _loading:  # two threads that arrive together would load it twice
        if (loaded := _loaded.get(name)) is None:
            import tiktoken  # most services never count

            file = resources.files("services.runtime.tokens").joinpath("vocabularies", f"{name}.tiktoken.gz")
            sha256, pattern = _DEFINITIONS[name]
            ranks = parse_vocabulary(gzip.decompress(file.read_bytes()), sha256)
            # Without special tokens: text that looks like one is ordinary text, whatever its source.
            loaded = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
            # It keeps them only for pickling, 30 MB in addition to the encoder's own tables (tiktoken 0.14).
            ranks.clear()
            _loaded[name] = loaded
        return loaded


def is_loaded(name: EncodingName) -> bool:
    """Return whether the encoding is loaded; valid until the event loop's next turn, when encodings may be dropped."""
    return name in _loaded


def drop_unused() -> bool:
    """Drop the encodings that were not used since the last call; return whether there were any."""
    unused = _loaded.keys() - _used
    for name in unused:
        del _loaded[name]
    _used.clear()
    return bool(unused)


def parse_vocabulary(content: bytes, sha256: str) -> dict[bytes, int]:
    """Return ranks by token; raises ValueError if the content has another hash."""
    if (found := hashlib.sha256(content).hexdigest()) != sha256:
        raise ValueError(f"the vocabulary file is damaged: its SHA-256 is {found}, expected {sha256}; install again")
    words = content.split()  # a token and its rank from each line; in one pass, which takes half the time
    return dict(zip(map(binascii.a2b_base64, words[::2]), map(int, words[1::2]), strict=True))


ESTIMATE_ENCODING: EncodingName = "o200k_base"
"""Encoding of estimates, for models with an unknown one."""

ESTIMATE_RATIO = 1.15
"""Factor of estimates, until reported usage gives a better one."""

PIECE_CHARS_MAX = 16_384
"""Maximum characters passed to tiktoken at once; it takes n log n for a long word and panics on a million blanks
(0.14)."""

MESSAGE_TOKENS = 4
LIST_TOKENS = 2

TOOL_TOKENS = 7
TOOLS_TOKENS = 12
"""Tokens of a tool and of the list, in addition to the texts (OpenAI's cookbook, "How to count tokens with tiktoken",
2024)."""

# After a letter or digit, both patterns end a match before white space and before these characters, whatever surrounds
# them; not before an apostrophe ('s), a mark or another letter. No match spans the cut, and none before it looks beyond
# it.
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


@lru_cache(maxsize=32)  # there are five; names in requests are unbounded
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
    """Cut `text` into pieces between half of PIECE_CHARS_MAX and all of it."""
    start = 0
    while len(text) - start > PIECE_CHARS_MAX:
        end = start + PIECE_CHARS_MAX
        cut = CUT.match(text, start + PIECE_CHARS_MAX // 2, end)
        stop = cut.end() if cut else end
        yield text[start:stop]
        start = stop
    yield text[start:]
