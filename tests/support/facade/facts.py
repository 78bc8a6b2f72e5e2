"""Facts of a scripted memory: the real RPCs and rules over a list."""

from typing import Any

from msgspec.structs import replace

from services.memory.data.holds import HoldsInForce
from services.memory.facts.rpcs import FactStore
from services.memory.storage.records.user_facts import Fact, MakeChange
from services.runtime.auth.identity import Identity


class ListedFacts:
    def __init__(self) -> None:
        self._facts: dict[str, Fact] = {}

    async def list_visible(self, owner: Identity, *, with_vectors: bool = False) -> list[Fact]:
        return [*self._facts.values()]

    async def change(self, owner: Identity, make: MakeChange) -> Fact:
        change = make(await self.list_visible(owner))
        for fact in change.changed:
            self._facts[fact.uuid] = replace(fact, n=fact.n or len(self._facts) + 1)
        return self._facts.get(change.fact.uuid, change.fact)

    async def list_all(self) -> list[Fact]:
        return [*self._facts.values()]


def make_fact_store() -> FactStore:
    listed: Any = ListedFacts()
    no_chats: Any = None  # facts without a source ask for none
    return FactStore(listed, no_chats, _read_no_holds, allows_tenant=False)


async def _read_no_holds() -> HoldsInForce:
    return HoldsInForce(())
