"""What goes wrong in a cluster, one thing after the other, at random moments, under runs that never stop."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from tests.cluster.asking import Asked, Asker
from tests.cluster.cluster import NAMES, Cluster

SERVICES = ("facade", "orchestrator", "memory", "llm_gateway", "tools")

DOWN_S = 0.3
"""Between a kill and the next start: what supervises a process is fast."""

Harm = tuple[str, Callable[[], Awaitable[None]]]
"""What is done, in words, and the doing."""


async def killed(cluster: Cluster, key: str) -> None:
    await cluster.kill(key)
    await asyncio.sleep(DOWN_S)
    await cluster.start(key)


async def cut(cluster: Cluster, link: str, for_s: float) -> None:
    cluster.links[link].cut()
    await asyncio.sleep(for_s)
    cluster.links[link].mend()


async def database_restarted(cluster: Cluster) -> None:
    await asyncio.to_thread(cluster.database.kill)
    await asyncio.to_thread(cluster.database.start)


def harms(cluster: Cluster, rounds: int, cut_s: float, chance: random.Random) -> list[Harm]:
    """So many of them, of each kind in turn, in any order."""
    kills: list[list[Harm]] = [
        [(f"kill -9 {service}-{name}", partial(killed, cluster, f"{service}-{name}")) for name in NAMES]
        for service in SERVICES
    ]
    restart: Harm = ("database restart", partial(database_restarted, cluster))
    cuts: list[Harm] = [(f"cut {link}", partial(cut, cluster, link, cut_s)) for link in sorted(cluster.links)]
    kinds = [*kills, [restart], *[cuts] * 4]
    found = [chance.choice(kinds[number % len(kinds)]) for number in range(rounds)]
    chance.shuffle(found)
    return found


@dataclass
class Load:
    """Runs that are asked one after the other, many at a time, until told to stop."""

    asker: Asker
    agent: str
    asked: list[Asked] = field(default_factory=list[Asked])
    is_over: bool = False

    async def keep_asking(self) -> None:
        while not self.is_over:
            self.asked.append(await self.asker.ask("go", self.agent))

    def ends(self) -> Counter[str]:
        found = Counter[str]()
        for run in self.asked:
            assert run.end is not None
            found[run.end.get("error", {}).get("code", run.end["type"])] += 1
        return found
