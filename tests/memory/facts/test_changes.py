from functools import partial

import pytest
from msgspec.structs import replace

from headrace.errors import FactsFull
from services.memory.data.holds import HoldsInForce
from services.memory.facts.changes import FACTS_MAX, add_fact
from services.memory.storage.records.erasures import StoredHold
from services.memory.storage.records.user_facts import Fact, make_fact
from services.runtime.auth.identity import Identity

ADA = Identity("acme", "ada")
BOB = Identity("acme", "bob")
add = partial(add_fact, replaces=(), allows_tenant=True, holds=HoldsInForce(()))
ADA_IS_HELD = HoldsInForce((StoredHold("hold-1", "acme", 1, "matter 12", "op", 1, user="ada"),))


def make_many(count: int) -> list[Fact]:
    return [replace(make_fact(ADA, f"fact {n}", ""), n=n) for n in range(1, count + 1)]


def test_the_number_of_a_users_valid_facts_is_bounded() -> None:
    known = make_many(FACTS_MAX)
    with pytest.raises(FactsFull):
        add(known, make_fact(ADA, "one more", ""))
    assert add(known, replace(make_fact(ADA, "of the tenant", ""), scope="tenant")).changed
    assert add(known[:-1], make_fact(ADA, "the last", "")).changed


def test_the_oldest_ended_fact_is_removed_to_make_room() -> None:
    known = make_many(FACTS_MAX)
    known[5] = replace(known[5], ended_at=20)
    known[7] = replace(known[7], ended_at=10)
    change = add(known, make_fact(ADA, "one more", ""))
    assert [(fact.n, fact.text) for fact in change.changed] == [(8, ""), (0, "one more")]


def test_an_ended_fact_of_a_held_user_is_not_removed_to_make_room() -> None:
    known = [replace(fact, scope="tenant") for fact in make_many(FACTS_MAX)]
    known[5] = replace(known[5], ended_at=20, user=BOB.user)
    known[7] = replace(known[7], ended_at=10)
    more = replace(make_fact(BOB, "one more", ""), scope="tenant")
    change = add(known, more, holds=ADA_IS_HELD)
    assert [(fact.n, fact.text) for fact in change.changed] == [(6, ""), (0, "one more")]
    known[5] = replace(known[5], ended_at=0)
    with pytest.raises(FactsFull, match="those that have ended are held"):
        add(known, more, holds=ADA_IS_HELD)
