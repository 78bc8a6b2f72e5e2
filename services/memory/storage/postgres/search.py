"""Full-text search: the words of a question as parts of texts, which an index of trigrams finds in any script.

A text is better the more of the words it holds; of texts that hold as many, the shorter one is better.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.memory.storage.postgres.statements import plain
from services.memory.storage.search import Hit, Question, pattern

if TYPE_CHECKING:
    from services.memory.storage.postgres.connection.session import Connection
    from services.runtime.auth.identity import Identity

_SEARCH = """
SELECT coalesce(chat_id, ''), run_id, text, {held} AS held
FROM texts LEFT JOIN chats ON chats.id = texts.chat
WHERE ({any}) AND kind = ANY($1) AND texts.tenant = $3 AND texts.user_name = $4
ORDER BY held DESC, length(folded), texts.id DESC LIMIT $2
"""


async def answer(owner: Identity, question: Question, connection: Connection) -> list[Hit]:
    """The best places in what is `owner`'s, the best first."""
    long, short = question.by_length()
    found = [(*row, float(held)) for *row, held in await _texts(long, owner, question, connection)]
    if len(found) < question.hits_max:
        known = {row[:3] for row in found}
        more = await _texts(short, owner, question, connection)
        # What only short words find comes after: they are in many texts.
        found += [(*row, held / (1 + held)) for *row, held in more if tuple(row) not in known]
    return [
        Hit(chat_id, run_id, question.excerpt(text), score)
        for chat_id, run_id, text, score in found[: question.hits_max]
    ]


async def _texts(
    terms: list[str], owner: Identity, question: Question, connection: Connection
) -> list[tuple[str, str, str, int]]:
    """Chat, run, text of the best texts with any of the terms, and how many of the terms each holds."""
    if not terms:
        return []
    patterns = [pattern(plain(term).casefold()) for term in terms]
    # One condition for each: the index takes no list of them.
    tests = [f"folded LIKE ${index}" for index in range(5, 5 + len(patterns))]
    query = _SEARCH.format(held=" + ".join(f"({test})::int" for test in tests), any=" OR ".join(tests))
    asked = (question.kinds, question.hits_max, owner.tenant, owner.user, *patterns)
    return [tuple(row) for row in await connection.fetch(query, *asked)]
