"""What goes wrong in a cluster, one thing after the other, at random moments, under runs that never stop."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle

from trials.chaos.asking import Asked, Asker
from trials.chaos.cluster import NAMES, SERVICES, Cluster

DOWN_S = 0.3
"""Between a kill and the next start: what supervises a process is fast."""

Up = Callable[[], AbstractAsyncContextManager[tuple[Cluster, Asker]]]
"""Gives a running cluster, and who asks it."""

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


async def restarted(cluster: Cluster, is_standby: bool) -> None:
    """Kill the primary or the standby of the database. What it was not heard of for is not over before they agree."""
    server = cluster.database.standby if is_standby else cluster.database.primary
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
    await asyncio.to_thread(cluster.database.wait)


async def failed_over(cluster: Cluster) -> None:
    """The primary dies: its connections end."""
    await asyncio.to_thread(cluster.database.primary.kill)
    await asyncio.to_thread(cluster.database.promote)
    await asyncio.to_thread(cluster.database.follow)


async def vanished(cluster: Cluster, for_s: float) -> None:
    """The primary's machine dies: nobody hears anything of it any more, not even that."""
    links, loop = cluster.links_to_primary(), asyncio.get_running_loop()
    until = loop.time() + for_s
    for link in links:
        link.cut()
    await failed_over(cluster)
    await asyncio.sleep(until - loop.time())
    for link in links:
        link.mend()


def harms(cluster: Cluster, rounds: int, cut_s: float, chance: random.Random) -> list[Harm]:
    """So many of them, of each kind in turn, in any order. None comes again before all of its kind have been: a link
    that is cut again and again is one that is cut for long, because TCP waits ever longer."""

    def dealt(*kind: Harm) -> Iterator[Harm]:
        return cycle(chance.sample(kind, len(kind)))

    kills = [
        dealt(*((f"kill -9 {service}-{name}", partial(killed, cluster, f"{service}-{name}")) for name in NAMES))
        for service in SERVICES
    ]
    restarts = dealt(
        ("kill -9 primary", partial(restarted, cluster, False)),
        ("kill -9 standby", partial(restarted, cluster, True)),
    )
    losses = dealt(
        ("fail-over", partial(failed_over, cluster)),
        ("primary vanishes", partial(vanished, cluster, cut_s * 3)),
    )
    cuts = dealt(*((f"cut {link}", partial(cut, cluster, link, cut_s)) for link in sorted(cluster.links)))
    kinds = [*kills, restarts, losses, *[cuts] * 3]
    order = [kinds[number % len(kinds)] for number in range(rounds)]
    chance.shuffle(order)
    return [next(kind) for kind in order]


@dataclass
class Load:
    """Runs that are asked one after the other, many at a time, until told to stop."""

    asker: Asker
    agent: str
    asked: list[Asked] = field(default_factory=list[Asked])
    is_over: bool = False

    async def keep_asking(self) -> None:
        while not self.is_over:
            self.asked.append(asked := Asked())
            await self.asker.ask(asked, "go", self.agent)

    def ends(self) -> Counter[str]:
        return Counter(outcome(run) for run in self.asked)


def outcome(run: Asked) -> str:
    """In a word: the type of its last event, or what a failed one failed with."""
    if run.end is None:
        return "none"
    return run.end.get("error", {}).get("code", run.end["type"])
