"""The significant words of a question and of facts: without stop words, reduced to stems.

Stop words and stems are those of the language with the most of the question's words in its lists (words.toml), so that
a question finds facts in its own language, and names in any.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from services.memory.storage.search import MARKS

TERMS_MAX = 64
"""Maximum words of a question to search for."""

LANGUAGES_MAX = 3
"""Maximum languages of a question; its words may be in several languages' lists."""

WEAK_CHARS_MIN = 3
"""Minimum length of a significant word; shorter ones resemble the stop words of languages without a list."""

CHARS_MAX = 2000
"""Maximum characters of a text whose words count."""

COMPOUNDING = frozenset({"german", "dutch", "swedish", "danish", "norwegian", "finnish", "hungarian"})
"""Languages that write "car insurance" as one word."""

PART_CHARS_MIN = 4
"""Minimum length of a compound's part to match; shorter ones occur in too many words."""

INFLECTED_CHARS_MIN, INFLECTED_CHARS = 5, 2
"""Minimum length of a stem that may be the prefix of another, and the maximum difference in length: `allerg` (allergic)
of `allergi` (allergy)."""

PART_SHARE = 0.6
"""Weight of a match with part of a word, relative to a whole one."""

_TABLE = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))

_WORD = re.compile(rf"(?:[^\W_]|[{MARKS}])+(?:'[^\W_]+)*")
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u309f\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af]+"
)
"""Thai, Lao, Burmese, Khmer, Hiragana, Chinese characters and Korean; Katakana runs are words already."""
_HANGUL = "\uac00"
_CHARACTERS = "\u3040"
"""From this character on, pairs of characters are compared, and single ones may be words; in the scripts before it,
triples."""


def fold(word: str) -> str:
    """Return a word without accents, which people often omit."""
    if word.isascii():
        return word
    letters = "".join(char for char in unicodedata.normalize("NFD", word) if not "\u0300" <= char <= "\u036f")
    return unicodedata.normalize("NFC", letters)


def _read_words(words: str) -> frozenset[str]:
    listed = words.casefold().split()
    return frozenset(listed) | frozenset(map(fold, listed))


_UNSPACED_STOP = _read_words(_TABLE.pop("unspaced")["stop"])
_CUT = re.compile("|".join(sorted(map(re.escape, _UNSPACED_STOP), key=len, reverse=True)))
_STOP = {name: _read_words(f"{lists['stop']} {lists['talk']}") for name, lists in _TABLE.items()}
_WEAK = {name: _read_words(lists["weak"]) for name, lists in _TABLE.items()}
_KNOWN = {name: stop | _WEAK[name] for name, stop in _STOP.items()}
_WITH_APOSTROPHE = frozenset(word for words in _KNOWN.values() for word in words if "'" in word)


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case, repeated ones included."""
    found: list[str] = []
    for word in _WORD.findall(unicodedata.normalize("NFKC", text[:CHARS_MAX]).casefold().replace("’", "'")):
        if _UNSPACED.search(word):
            found += _split_unspaced(word)
        elif "'" not in word or word in _WITH_APOSTROPHE:
            found.append(word)
        else:
            found += (part for part in word.split("'") if len(part) > 2)  # neither 's nor l'
    return found


def _split_unspaced(word: str) -> Iterable[str]:
    start = 0
    for run in _UNSPACED.finditer(word):
        yield from filter(None, [word[start : run.start()]])
        pieces = [run[0]] if run[0] >= _HANGUL else _CUT.split(run[0])
        for piece in filter(None, pieces):
            size = 2 if piece >= _CHARACTERS else 3
            grams = (piece[at : at + size] for at in range(max(1, len(piece) - size + 1)))
            yield from (gram for gram in grams if gram not in _UNSPACED_STOP)
        start = run.end()
    yield from filter(None, [word[start:]])


def find_languages(words: Iterable[str], others: Iterable[str]) -> list[str]:
    """Return the languages that know most of `words`; if several tie, those that know most of `others`."""
    best = _find_best(words, list(_KNOWN))
    return (best if len(best) == 1 else _find_best(others, best))[:LANGUAGES_MAX]


def _find_best(words: Iterable[str], languages: Sequence[str]) -> list[str]:
    counts = Counter(name for word in words for name in languages if word in _KNOWN[name])
    return [name for name in languages if counts[name] == max(counts.values(), default=0)]


@dataclass(frozen=True, slots=True)
class Term:
    word: str
    """A word of the question without accents."""
    stem: str
    is_weak: bool
    """Whether it finds a fact only if it is most of the question."""


class Question:
    def __init__(self, words: Sequence[str], language: str) -> None:
        """Not thread-safe: the stemmer holds the current word."""
        # Imported with the first question, because it brings all languages' rules: 3 MB of a service at rest.
        import snowballstemmer

        self._stemmer = snowballstemmer.stemmer(language)
        self._is_compounding = language in COMPOUNDING
        weak = set(map(self._stem, _WEAK[language]))
        terms: dict[str, Term] = {}
        for word in words:
            stem = self._stem(word)
            if word not in _STOP[language] and stem not in terms:
                is_short = len(word) < WEAK_CHARS_MIN and word < _CHARACTERS
                terms[stem] = Term(fold(word), stem, is_short or stem in weak)
        self.terms = list(terms.values())[:TERMS_MAX]
        self._starts: dict[str, list[Term]] = {}
        for term in self.terms:
            self._starts.setdefault(term.word[:2], []).append(term)

    def match(self, word: str) -> dict[Term, float]:
        """Return the terms that match a fact's word, with weights: 1.0 for another form of the same word."""
        folded = fold(word)
        found: dict[Term, float] = {}
        if self._is_compounding or folded >= _CHARACTERS:
            found = {term: PART_SHARE for term in self.terms if self._is_part(folded, term.word)}
        if alike := self._starts.get(folded[:2]):  # a stem begins as its word does
            stem = self._stem(word)
            found |= {term: share for term in alike if (share := _compare_stems(stem, term.stem))}
        return found

    def _stem(self, word: str) -> str:
        return fold(self._stemmer.stemWord(word))

    def _is_part(self, one: str, other: str) -> bool:
        short, long = (one, other) if len(one) < len(other) else (other, one)
        is_word = len(short) >= PART_CHARS_MIN or short >= _CHARACTERS
        return is_word and (long.startswith(short) or long.endswith(short))


def _compare_stems(one: str, other: str) -> float:
    if one == other:
        return 1.0
    short, long = (one, other) if len(one) < len(other) else (other, one)
    is_inflected = len(short) >= INFLECTED_CHARS_MIN and len(long) - len(short) <= INFLECTED_CHARS
    return PART_SHARE if is_inflected and long.startswith(short) else 0.0
