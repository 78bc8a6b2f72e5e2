"""OpenAI's encodings, loaded on demand and dropped when nobody has counted with them for a while.

Vocabularies and patterns are from tiktoken_ext/openai_public.py of tiktoken 0.14; tests compare them.
"""

from __future__ import annotations

import binascii
import gzip
import hashlib
import threading
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    import tiktoken

EncodingName: TypeAlias = Literal["cl100k_base", "o200k_base"]


@dataclass(frozen=True, slots=True)
class _Definition:
    sha256: str

    pattern: str


_DEFINITIONS: dict[EncodingName, _Definition] = {
    "cl100k_base": _Definition(
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
        r"|\s+(?!\S)|\s",
    ),
    "o200k_base": _Definition(
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
}

_loaded: dict[EncodingName, tiktoken.Encoding] = {}
_loading = threading.Lock()
_used: set[EncodingName] = set()
"""Those that were asked for since `drop_unused` looked."""


def encoding(name: EncodingName) -> tiktoken.Encoding:
    """Return the encoding, shared by all threads; a call that loads it takes 0.1 to 0.3 s and 20 (cl100k) or 40 MB
    (o200k)."""
    _used.add(name)
    if (known := _loaded.get(name)) is not None:
        return known
    with _loading:  # two threads that come first together would load it twice
        if (loaded := _loaded.get(name)) is None:
            import tiktoken  # most services never count

            file = resources.files("services.runtime.tokens").joinpath("vocabularies", f"{name}.tiktoken.gz")
            ranks = parse_vocabulary(gzip.decompress(file.read_bytes()), _DEFINITIONS[name].sha256)
            pattern = _DEFINITIONS[name].pattern
            # Without special tokens: text that looks like one is ordinary text, whoever wrote it.
            loaded = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
            # It holds them for pickling alone, 30 MB beside the encoder's own tables (tiktoken 0.14).
            ranks.clear()
            _loaded[name] = loaded
        return loaded


def is_loaded(name: EncodingName) -> bool:
    """Whether a count can be had at once; true until the event loop's next turn, where encodings are dropped."""
    return name in _loaded


def drop_unused() -> bool:
    """Drop the encodings that nobody has asked for since the last call; return whether there were any."""
    unused = _loaded.keys() - _used
    for name in unused:
        del _loaded[name]
    _used.clear()
    return bool(unused)


def parse_vocabulary(content: bytes, sha256: str) -> dict[bytes, int]:
    """Return ranks by token; raises ValueError if the content has another hash."""
    if (found := hashlib.sha256(content).hexdigest()) != sha256:
        raise ValueError(f"the vocabulary file is damaged: its SHA-256 is {found}, expected {sha256}; install again")
    words = content.split()  # of each line a token and its rank; in one pass, which takes half the time
    return dict(zip(map(binascii.a2b_base64, words[::2]), map(int, words[1::2]), strict=True))
