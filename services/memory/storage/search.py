"""The search of texts: questions, hits, and the statements for texts in plain, in SQL that both engines accept.

A search reads the user's own texts, newest first, and finds words as parts of them in any script. Texts with more of
the words rank higher, then shorter ones.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidRequest
from services.memory.encryption.envelope import is_encrypted_text
from services.memory.storage.where import Where
from services.runtime.formats.normal_form import normalize_text

if TYPE_CHECKING:
    from services.runtime.auth.identity import Identity

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
        folded = fold(text)
        found = (folded.find(fold(term)) for term in self.terms)
        at = find_place(text, folded, min((place for place in found if place >= 0), default=0))
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
    """Return the distinct words of a text; for scripts without spaces, each sequence of three characters.

    Emoji and other symbols beyond ASCII are words of their own.
    """
    query = normalize_text("NFC", query)
    terms: dict[str, None] = {}
    for word in _WORD.findall(query):
        start = 0
        for run in _UNSPACED.finditer(word):
            terms |= dict.fromkeys(filter(None, [word[start : run.start()]]))
            terms |= dict.fromkeys(run[0][at : at + _TRIGRAM] for at in range(max(1, len(run[0]) - _TRIGRAM + 1)))
            start = run.end()
        terms |= dict.fromkeys(filter(None, [word[start:]]))
    symbols = (char for char in query if not char.isascii() and unicodedata.category(char)[0] == "S")
    return list(terms | dict.fromkeys(symbols))


def fold(text: str) -> str:
    """Return a text without case, its letters and their accents in one form, with plain apostrophes; the Turkish dotted
    capital is an i."""
    if text.isascii():
        return text.lower()
    return normalize_text("NFC", text.casefold()).replace("i\u0307", "i").replace("’", "'")


def find_place(text: str, folded: str, place: int) -> int:
    """Return the place in `text` of what is at `place` in its folded form, to within a letter."""
    if len(folded) == len(text):
        return place
    # ß folds to two letters, and a letter with its accent to one.
    low, high = 0, len(text)
    while high - low > 1:
        middle = (low + high) // 2
        length = len(fold(text[low:middle]))
        if length <= place:
            low, place = middle, place - length
        else:
            high = middle
    return low


def compute_rarity(held: int, count: int) -> float:
    """Return BM25's weight of a word that `held` of `count` texts contain; rare words weigh more."""
    return math.log(1 + (count - held + 0.5) / (held + 0.5))


def make_like_pattern(term: str) -> str:
    return "%" + re.sub(r"([\\%_])", r"\\\1", fold(term)) + "%"


READ_TEXTS = 20_000
"""Maximum own texts that one statement of a search reads: some 50 ms at 400 characters each (2026-11)."""

READS_MAX = 10
"""Maximum statements of a search; texts of a user beyond those are too old to be found."""

N_MAX = 2**63 - 1

TITLE = "coalesce(nullif(title, ''), name)"
"""The title of a chat; services of version 7 still write chats without one."""

_OWN_TEXTS = """
SELECT count(*), min(id) FROM (
    SELECT id FROM texts WHERE tenant = $1 AND user_name = $2 AND id < $3 ORDER BY id DESC LIMIT $4) AS page
"""

_BEST = """
SELECT best.id, length(folded), coalesce(chat_id, ''), coalesce({title}, ''), run_id, text, long, short FROM (
    SELECT id, {chat}, run_id, text, folded, {long} AS long, CASE {long} WHEN 0 THEN {short} ELSE 0 END AS short
    FROM texts WHERE {where} ORDER BY long DESC, short DESC, length(folded), id DESC LIMIT {limit}
) AS best LEFT JOIN chats {join}
"""


async def search_texts(
    fetch: Callable[[str, list[Any]], Awaitable[Sequence[Sequence[Any]]]],
    owner: Identity,
    question: Question,
    chat: str,
    join: str,
) -> list[Hit]:
    """Search the owner's texts by `fetch`, which runs a statement with its values.

    `chat` is the column of a text's chat, and `join` joins `chats` to the best texts.
    """
    terms, short = question.split_by_length()
    best: list[tuple[tuple[float, int, int], Hit]] = []
    before = N_MAX
    for _ in range(READS_MAX if terms or short else 0):
        [(count, first)] = await fetch(_OWN_TEXTS, [owner.tenant, owner.user, before, READ_TEXTS])
        if not count:
            break
        where = Where()
        where.add("tenant = {} AND user_name = {} AND id < {} AND id >= {}", owner.tenant, owner.user, before, first)
        where.add(f"kind IN ({', '.join('{}' for _ in question.kinds)})", *question.kinds)
        tests = [f"folded LIKE {where.mark(make_like_pattern(term))} ESCAPE '\\'" for term in (*terms, *short)]
        where.add(f"({' OR '.join(tests)})")
        counts = [
            " + ".join(f"CAST({test} AS int)" for test in part) or "0"
            for part in (tests[: len(terms)], tests[len(terms) :])
        ]
        limit = where.mark(question.hits_max)
        query = _BEST.format(
            title=TITLE, chat=chat, long=counts[0], short=counts[1], where=where, limit=limit, join=join
        )
        for place, length, chat_id, title, run_id, text, held, held_short in await fetch(query, where.values):
            # Matches of short words alone rank below, because many texts contain them.
            score = float(held or held_short / (1 + held_short))
            best.append(((-score, length, -place), Hit(chat_id, title, run_id, question.make_excerpt(text), score)))
        best = sorted(best, key=lambda hit: hit[0])[: question.hits_max]
        is_full = len(best) == question.hits_max and best[-1][0][0] == -len(terms or short)
        if count < READ_TEXTS or is_full:
            break
        before = first
    return [hit for _, hit in best]


def fold_text(text: str) -> str:
    """Return the form in which a text is searched; encrypted texts have none."""
    return "" if is_encrypted_text(text) else fold(text)
