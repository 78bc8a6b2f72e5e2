"""A run's share of the budgets that apply to it: memory grants a part, and more once that is used up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from headrace.v1 import common_pb2, memory_pb2
from services.orchestrator.money.budgets import BudgetsFile
from services.orchestrator.peers.models import CallNeeds
from services.orchestrator.peers.stubs import Peers
from services.runtime.auth.identity import Identity
from services.runtime.usage import to_nano_usd

SPARE_CALLS = 3
"""Further calls of the same size to ask for at once, so that most runs ask memory only once."""


@dataclass(slots=True)
class Allowance:
    """Belongs to one run; its scopes share it."""

    run_id: str
    identity: Identity
    peers: Peers
    file: BudgetsFile
    list_agents: Callable[[], Collection[str]]
    """Keys of all agents that the run may ask."""
    _granted: tuple[int, int] | None = None
    """Billionths of a US dollar and tokens, for the run's whole life; None before the first grant."""
    _open: tuple[int, int] = (0, 0)
    """The most that calls under way may need."""
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    @asynccontextmanager
    async def covering(self, needs: CallNeeds, usage: common_pb2.Usage) -> AsyncGenerator[None]:
        """Have a grant for a call inside the block; `usage` is what the run has spent before it.

        Raises:
            QuotaExceeded: A budget has no room for the call; it says when there is again.
        """
        if not self.file.current.rules:
            yield
            return
        need = to_nano_usd(needs.cost_usd_max), needs.input_tokens + needs.output_tokens_max
        async with self._asking:  # one claim at a time: the next one sees what this one was granted
            await self._claim(need, usage)
            self._open = self._open[0] + need[0], self._open[1] + need[1]
        try:
            yield
        finally:
            self._open = self._open[0] - need[0], self._open[1] - need[1]

    async def _claim(self, need: tuple[int, int], usage: common_pb2.Usage) -> None:
        spent = to_nano_usd(usage.cost_usd), usage.input_tokens + usage.output_tokens
        least = tuple(spent[unit] + self._open[unit] + need[unit] for unit in (0, 1))
        if self._granted is not None and all(granted >= at for granted, at in zip(self._granted, least, strict=True)):
            return
        agent_keys = self.list_agents()
        budgets = self.file.current.select(self.identity, agent_keys)
        if not budgets:
            return
        wanted = tuple(least[unit] + SPARE_CALLS * need[unit] for unit in (0, 1))
        request = memory_pb2.ReserveSpendRequest(
            run_id=self.run_id,
            agent_keys=agent_keys,
            budgets=budgets,
            least=memory_pb2.SpendAmount(nano_usd=least[0], tokens=least[1]),
            wanted=memory_pb2.SpendAmount(nano_usd=wanted[0], tokens=wanted[1]),
        )
        response = await self.peers.memory.ReserveSpend(request)
        self._granted = response.granted.nano_usd, response.granted.tokens


def list_agents_below(roots: Collection[str], find_subagents: Callable[[str], Collection[str]]) -> set[str]:
    """Return `roots` and all agents that they, and those, may call."""
    found: set[str] = set()
    rest = [*roots]
    while rest:
        if (key := rest.pop()) not in found:
            found.add(key)
            rest += find_subagents(key)
    return found
