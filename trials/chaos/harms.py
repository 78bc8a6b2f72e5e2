"""Faults of a cluster, one after another at random moments, under runs that never stop."""

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
"""Time between a kill and the next start; supervisors restart processes quickly."""

Up = Callable[[], AbstractAsyncContextManager[tuple[Cluster, Asker]]]
"""Yields a running cluster, and a client of it."""

Harm = tuple[str, Callable[[], Awaitable[None]]]
"""Description of a fault, and the function that causes it."""


async def killed(cluster: Cluster, key: str) -> None:
    await cluster.kill(key)
    await asyncio.sleep(DOWN_S)
    await cluster.start(key)


async def cut(cluster: Cluster, link: str, for_s: float) -> None:
    cluster.links[link].cut()
    await asyncio.sleep(for_s)
    cluster.links[link].mend()


async def restarted(cluster: Cluster, is_standby: bool) -> None:
    """Kill and restart the primary or the standby of the database, and wait until the two agree."""
    server = cluster.database.standby if is_standby else cluster.database.primary
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
    await asyncio.to_thread(cluster.database.wait)


async def failed_over(cluster: Cluster) -> None:
    """Kill the primary, which ends its connections, and promote the standby."""
    await asyncio.to_thread(cluster.database.primary.kill)
    await asyncio.to_thread(cluster.database.promote)
    await asyncio.to_thread(cluster.database.follow)


async def vanished(cluster: Cluster, for_s: float) -> None:
    """Make the primary's machine vanish: it becomes silent, without even closing connections."""
    links, loop = cluster.links_to_primary(), asyncio.get_running_loop()
    until = loop.time() + for_s
    for link in links:
        link.cut()
    await failed_over(cluster)
    await asyncio.sleep(until - loop.time())
    for link in links:
        link.mend()


def harms(cluster: Cluster, rounds: int, cut_s: float, chance: random.Random) -> list[Harm]:
    """Return `rounds` faults of all kinds, in random order.

    A fault is repeated only after all others of its kind: TCP waits longer and longer on a link that is cut
    again and again.
    """

    def dealt(*kind: Harm) -> Iterator[Harm]:
        return cycle(chance.sample(kind, len(kind)))

    kills = [
        dealt(*((f"kill -9 {service}-{name}", partial(killed, cluster, f"{service}-{name}")) for name in NAMES))
        for service in SERVICES
    ]
    restarts = dealt(
        ("kill -9 primary", partial(restarted, cluster, False)), ("kill -9 standby", partial(restarted, cluster, True))
    )
    losses = dealt(
        ("fail-over", partial(failed_over, cluster)), ("primary vanishes", partial(vanished, cluster, cut_s * 3))
    )
    cuts = dealt(*((f"cut {link}", partial(cut, cluster, link, cut_s)) for link in sorted(cluster.links)))
    kinds = [*kills, restarts, losses, *[cuts] * 3]
    order = [kinds[number % len(kinds)] for number in range(rounds)]
    chance.shuffle(order)
    return [next(kind) for kind in order]


@dataclass
class Load:
    """Starts runs continuously, one after another per task, until it is stopped."""

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
    """Return the type of the run's last event, or the error code of a failed run."""
    if run.end is None:
        return "none"
    return run.end.get("error", {}).get("code", run.end["type"])
