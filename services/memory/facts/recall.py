"""Which facts a query finds: by words, in any script, the same on both engines.

A word counts by how few facts hold it, and by how much of the fact's word it is: "like" finds "likes".
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from services.memory.storage.records.user_facts import Fact
from services.memory.storage.search import split_terms

TERMS_MAX = 64
"""Words of one query: with 2,000 facts they cost some 30 ms."""

STEM_CHARS = 3
"""Shortest word of a fact that a longer word of the query may begin with, and shortest part of a Latin word."""


def rank_facts(query: str, facts: Sequence[Fact]) -> list[tuple[Fact, float]]:
    """Return the facts that hold a word of `query`, with their scores, the best first."""
    terms = split_terms(query.casefold())[:TERMS_MAX]
    words = [split_terms(f"{fact.topic} {fact.text}".casefold()) for fact in facts]
    matches = {word: found for word in {word for each in words for word in each} if (found := _match_word(word, terms))}
    best: list[dict[int, float]] = []
    held: defaultdict[int, int] = defaultdict(int)
    for each in words:
        shares: dict[int, float] = {}
        for word in each:
            for index, share in matches.get(word, ()):
                shares[index] = max(share, shares.get(index, 0.0))
        best.append(shares)
        for index in shares:
            held[index] += 1
    weights = {index: math.log((len(facts) + 1) / count) for index, count in held.items()}
    ranked = [
        (fact, sum(share * weights[index] for index, share in shares.items()))
        for fact, shares in zip(facts, best, strict=True)
        if shares
    ]
    return sorted(ranked, key=lambda row: (-row[1], -row[0].n))


def _match_word(word: str, terms: Sequence[str]) -> list[tuple[int, float]]:
    found: list[tuple[int, float]] = []
    for index, term in enumerate(terms):
        if len(term) < STEM_CHARS and term.isascii():
            if term == word:  # as a part it is in nearly all
                found.append((index, 1.0))
        elif term in word:
            found.append((index, len(term) / len(word)))
        elif len(word) >= STEM_CHARS and term.startswith(word):
            found.append((index, len(word) / len(term)))
    return found
