"""Full-text search in the index file: trigrams for words of three characters and more, patterns for shorter ones."""

from __future__ import annotations

from services.memory.storage.files.indexing.database import IndexDatabase
from services.memory.storage.search import Hit, Question, make_like_pattern
from services.runtime.auth.identity import Identity


def search_texts(question: Question, database: IndexDatabase, owner: Identity) -> list[Hit]:
    if not question.terms:
        return []
    long, short = question.split_by_length()
    match = " OR ".join('"' + term.replace('"', '""') + '"' for term in long)
    found = database.find_texts(owner, match, [], question.kinds, question.hits_max) if long else []
    if len(found) < question.hits_max and short:
        known = {row[:4] for row in found}
        # LIKE ignores case in ASCII only, so other words are sought in all their ways of writing.
        forms = [{term} if term.isascii() else {term.lower(), term.upper(), term.capitalize()} for term in short]
        patterns = [make_like_pattern(form) for form in set().union(*forms)]
        more = database.find_texts(owner, "", patterns, question.kinds, question.hits_max)
        # Matches of short words alone rank below, because many texts contain them.
        found += [(*row[:4], 1 / (1 - row[4])) for row in more if row[:4] not in known]
    return [
        Hit(chat_id, title, run_id, question.make_excerpt(text), -rank)
        for chat_id, title, run_id, text, rank in found[: question.hits_max]
    ]
