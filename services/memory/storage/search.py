"""Questions to the search of texts, which finds words of any script as parts of them, and their hits."""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import dataclass

from headrace.errors import InvalidRequest

HITS_MAX, HITS_DEFAULT = 100, 20

TERMS_MAX = 32
"""Maximum terms of one question; a pasted page is cut to its first words."""

EXCERPT_CHARS = 160

_KINDS = {"chats": ["chat"], "insights": ["insight"], "summaries": ["summary"]}
_ALL = ["chat", "insight", "summary"]

MARKS = "".join(char for char in map(chr, range(0x300, 0x3100)) if unicodedata.category(char)[0] == "M")
"""Vowel and tone marks that belong to their letters, as in Thai and Hindi, and combining accents."""

_WORD = re.compile(rf"[\w{MARKS}'-]+")
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)
"""Scripts without spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""

_TRIGRAM = 3


@dataclass(frozen=True, slots=True)
class Hit:
    chat_id: str
    """Chat of the text; empty for a remembered fact."""
    title: str
    run_id: str
    excerpt: str
    score: float
    """Rank of the text; higher is better."""


@dataclass(frozen=True, slots=True)
class Question:
    terms: list[str]
    kinds: list[str]
    hits_max: int
    has_facts: bool = False
    """Whether facts, which are not indexed, are searched too."""

    @classmethod
    def parse(cls, query: str, scope: str, limit: int) -> Question:
        """Parse a caller's question.

        Raises:
            InvalidRequest: It asks for too many hits.
        """
        return cls(split_terms(query)[:TERMS_MAX], _KINDS.get(scope, _ALL), read_limit(limit), scope not in _KINDS)

    def split_by_length(self) -> tuple[list[str], list[str]]:
        long = [term for term in self.terms if len(term) >= _TRIGRAM]
        return long, [term for term in self.terms if len(term) < _TRIGRAM]

    def make_excerpt(self, text: str) -> str:
        lowered = text.lower()
        found = (lowered.find(term.lower()) for term in self.terms)
        at = min((place for place in found if place >= 0), default=0)
        start = max(0, min(at - EXCERPT_CHARS // 3, len(text) - EXCERPT_CHARS))
        end = start + EXCERPT_CHARS
        part = " ".join(text[start:end].split())
        return ("…" if start else "") + part + ("…" if end < len(text) else "")


def read_limit(limit: int) -> int:
    """Return the number of hits, 0 being the default. Raises InvalidRequest if there are too many."""
    if not 0 <= limit <= HITS_MAX:
        raise InvalidRequest.of("limit", f"must be 1 to {HITS_MAX}, or 0 for {HITS_DEFAULT}")
    return limit or HITS_DEFAULT


def split_terms(query: str) -> list[str]:
    """Return the distinct words of a text; for scripts without spaces, each sequence of three characters."""
    terms: dict[str, None] = {}
    for word in _WORD.findall(query):
        start = 0
        for run in _UNSPACED.finditer(word):
            terms |= dict.fromkeys(filter(None, [word[start : run.start()]]))
            terms |= dict.fromkeys(run[0][at : at + _TRIGRAM] for at in range(max(1, len(run[0]) - _TRIGRAM + 1)))
            start = run.end()
        terms |= dict.fromkeys(filter(None, [word[start:]]))
    return list(terms)


def compute_rarity(held: int, count: int) -> float:
    """Return BM25's weight of a word that `held` of `count` texts contain; rare words weigh more."""
    return math.log(1 + (count - held + 0.5) / (held + 0.5))


def make_like_pattern(term: str) -> str:
    return "%" + re.sub(r"([\\%_])", r"\\\1", term) + "%"
