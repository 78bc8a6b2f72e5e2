"""Searches encrypted texts: they cannot be indexed, so the user's newest ones are read and scanned."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from services.memory.storage.search import Hit, fold

if TYPE_CHECKING:
    from collections.abc import Iterable

    from services.memory.storage.encrypted.rows import RowCipher
    from services.memory.storage.search import Question

PAGE_TEXTS = 500
"""Texts read at a time; other queries run between two pages."""

TEXTS_MAX = 20_000
"""Maximum texts scanned per user, newest first: some 0.1 s of CPU at 400 characters each (2026-11)."""


class TextRow(NamedTuple):
    place: int
    """Later ones are newer."""
    chat_id: str
    title: str
    run_id: str
    kind: str
    text: str


class _Match(NamedTuple):
    score: float
    length: int
    """Negative, so that the shorter of two with the same score is greater."""
    place: int
    row: TextRow
    text: str


class EncryptedSearch:
    """One search, which receives the user's texts in pages."""

    def __init__(self, question: Question, cipher: RowCipher) -> None:
        self._question = question
        self._cipher = cipher
        long, short = question.split_by_length()
        self._long, self._short = [fold(term) for term in long], [fold(term) for term in short]
        self._best: list[_Match] = []

    def add_rows(self, rows: Iterable[TextRow]) -> None:
        """Scan texts. Raises LogDamaged, KeyUnavailable, Overloaded."""
        for row in rows:
            text = self._cipher.decrypt_searched(row.chat_id, row.run_id, row.kind, row.text)
            folded = fold(text)
            score = float(sum(term in folded for term in self._long))
            if not score:  # matches of short words alone rank below, because many texts contain them
                count = sum(term in folded for term in self._short)
                score = count / (1 + count)
            if score:
                self._best.append(_Match(score, -len(folded), row.place, row, text))
        self._best = sorted(self._best, key=lambda match: match[:3], reverse=True)[: self._question.hits_max]

    def list_hits(self) -> list[Hit]:
        return [
            Hit(
                match.row.chat_id,
                self._cipher.decrypt_title(match.row.chat_id, match.row.title),
                match.row.run_id,
                self._question.make_excerpt(match.text),
                match.score,
            )
            for match in self._best
        ]
