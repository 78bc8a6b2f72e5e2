"""Stores, changes and deletes a fact among those that a user sees.

Each function takes those facts and returns the records to store; repeating it afterwards changes nothing.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from headrace.errors import FactsFull, NotFound, PermissionDenied
from services.memory.storage.records.user_facts import NO_SOURCE, Fact, FactChange
from services.memory.storage.search import fold
from services.runtime.clock import now_ms

if TYPE_CHECKING:
    from services.memory.data.holds import HoldsInForce

FACTS_MAX = 2000
"""Maximum facts of a user, or of a tenant, that are not deleted; each recall reads them all. The oldest ended ones are
dropped first. A user's plans are counted separately."""

PLANS_MAX = 50
"""Maximum plans of a user with one agent."""


def add_fact(
    known: Sequence[Fact], fact: Fact, replaces: Collection[str], *, allows_tenant: bool, holds: HoldsInForce
) -> FactChange:
    """Store `fact`, ending the facts it replaces and those of its scope with the same topic, or keep a valid one that
    says the same.

    Raises:
        NotFound: A fact to replace does not exist.
        PermissionDenied: The fact, or one to replace, is the tenant's, which the user may not write.
        FactsFull: There are FACTS_MAX valid or held facts.
        Held: The fact is a plan, and the one that it would overwrite belongs to a user on hold.
    """
    for other in known:
        if other.owner == fact.owner and (other.uuid == fact.uuid or (fact.request_id and other.key == fact.key)):
            return FactChange(other)
    _check_may_write(fact, allows_tenant)
    if not replaces and (same := next((other for other in known if _says_the_same(other, fact)), None)) is not None:
        return FactChange(same)
    ended = [find_fact(known, fact_id) for fact_id in replaces]
    for other in ended:
        _check_may_write(other, allows_tenant)
    ended += [other for other in known if _has_same_topic(other, fact)]
    if fact.scope == "plan" and (old := _find_overwritten(known, fact)) is not None:
        # Replacing rows would leave a tombstone for each run.
        holds.check(fact.owner.tenant, fact.owner.user)
        fact = replace(fact, uuid=old.uuid)
        ended = [other for other in ended if other.uuid != old.uuid]
    return FactChange(fact, [*_make_room(known, fact, holds), fact, *_end_facts(ended, fact)])


def update_fact(
    known: Sequence[Fact],
    fact_id: str,
    text: str | None,
    topic: str | None,
    *,
    allows_tenant: bool,
    holds: HoldsInForce,
) -> FactChange:
    """Change a fact's text or topic; None leaves it unchanged.

    Raises NotFound and PermissionDenied like add_fact, and Held for a held user's fact, because its text would be lost.
    """
    fact = find_fact(known, fact_id)
    _check_may_write(fact, allows_tenant)
    holds.check(fact.owner.tenant, fact.owner.user)
    changed = replace(
        fact,
        text=fact.text if text is None else text,
        topic=fact.topic if topic is None else topic,
        updated_at=now_ms(),
        vector=b"",
        vector_model="",
    )
    if (changed.text, changed.topic) == (fact.text, fact.topic):
        return FactChange(fact)
    others = [
        other for other in known if other.uuid != fact_id and changed.is_valid and _has_same_topic(other, changed)
    ]
    return FactChange(changed, [changed, *_end_facts(others, changed)])


def delete_fact(known: Sequence[Fact], fact_id: str, *, allows_tenant: bool, holds: HoldsInForce) -> FactChange:
    """Replace a fact with a tombstone. Raises NotFound, PermissionDenied and Held like update_fact."""
    fact = next((fact for fact in known if fact.uuid == fact_id), None)
    if fact is None:
        raise fact_not_found(fact_id)
    _check_may_write(fact, allows_tenant)
    if fact.deleted_at:
        return FactChange(fact)
    holds.check(fact.owner.tenant, fact.owner.user)
    tombstone = _bury(fact)
    return FactChange(tombstone, [tombstone])


def find_fact(known: Iterable[Fact], fact_id: str) -> Fact:
    """Return the fact, valid or ended. Raises NotFound."""
    for fact in known:
        if fact.uuid == fact_id and not fact.deleted_at:
            return fact
    raise fact_not_found(fact_id)


def fact_not_found(fact_id: str) -> NotFound:
    return NotFound(f"fact {fact_id[:36]} does not exist", factId=fact_id[:36])


def _check_may_write(fact: Fact, allows_tenant: bool) -> None:
    if fact.scope == "tenant" and not allows_tenant:
        raise PermissionDenied("facts of the tenant may not be written here: HEADRACE_MEMORY_TENANT_FACTS is false")


def _is_beside(other: Fact, fact: Fact) -> bool:
    """Return whether the other fact is valid, and seen by the same users and agents."""
    there = (fact.place, fact.scope, fact.agent_key)
    return other.is_valid and (other.place, other.scope, other.agent_key) == there


def _has_same_topic(other: Fact, fact: Fact) -> bool:
    return bool(fact.topic) and _is_beside(other, fact) and _read_topic(other.topic) == _read_topic(fact.topic)


def _says_the_same(other: Fact, fact: Fact) -> bool:
    """Return whether the other fact has the same words, and also the topic if the fact names one; never for a plan."""
    is_topic_known = not fact.topic or _read_topic(other.topic) == _read_topic(fact.topic)
    is_same = is_topic_known and _is_beside(other, fact) and _read_words(other.text) == _read_words(fact.text)
    return is_same and fact.scope != "plan"


def _read_words(text: str) -> str:
    return " ".join(fold(text).split()).rstrip(".!。")


def _read_topic(topic: str) -> str:
    """Return a topic's normalized form: models write "home town", "Home-town" and "hometown".

    Vowel signs stay, and so do symbols: C++ is not C#.
    """
    folded = fold(topic)
    return "".join(char for char in folded if char == "#" or unicodedata.category(char)[0] not in "PZC") or folded


def _end_facts(ended: Iterable[Fact], by: Fact) -> list[Fact]:
    found = {fact.uuid: fact for fact in ended if fact.is_valid}
    return [
        replace(fact, ended_at=by.updated_at, updated_at=by.updated_at, replaced_by=by.uuid) for fact in found.values()
    ]


def _find_overwritten(known: Sequence[Fact], plan: Fact) -> Fact | None:
    """Return the plan for the same question, or the oldest one if the limit is reached; None to add a new row."""
    plans = [other for other in known if other.scope == "plan" and not other.deleted_at]
    own = [other for other in plans if other.agent_key == plan.agent_key]
    asked = plan.question.casefold()
    for other in own:
        if other.question.casefold() == asked:
            return other
    full = own if len(own) >= PLANS_MAX else plans if len(plans) >= FACTS_MAX else []
    return min(full, key=lambda other: (other.updated_at, other.n), default=None)


def _make_room(known: Sequence[Fact], fact: Fact, holds: HoldsInForce) -> list[Fact]:
    kept = [other for other in known if other.place == fact.place and other.scope != "plan" and not other.deleted_at]
    if fact.scope == "plan" or len(kept) < FACTS_MAX:
        return []
    ended = [other for other in kept if other.ended_at and holds.find(other.owner.tenant, other.owner.user) is None]
    if not ended:
        why = "those that have ended are held" if any(other.ended_at for other in kept) else "delete some"
        raise FactsFull(f"{FACTS_MAX} facts are stored already; {why}", factsMax=FACTS_MAX)
    return [_bury(min(ended, key=lambda other: (other.ended_at, other.n)))]


def _bury(fact: Fact) -> Fact:
    now = now_ms()
    return replace(
        fact, text="", topic="", source=NO_SOURCE, vector=b"", vector_model="", updated_at=now, deleted_at=now
    )
