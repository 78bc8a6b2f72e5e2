"""What people do and what goes wrong in a world, chosen by its seed; a shrunk plan has less of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

SPAN_S = 120.0
"""Simulated time within which faults begin that are to meet nothing."""

MEETING_SHARE, MEETING_S = 0.8, 8.0
"""Share of the faults that begin while somebody is likely to wait, and how long after the question."""

LASTS_S = (0.1, 20.0)

WAITS_S = (0.1, 3.0)
"""Half of the time for which a process that does little may take its last turns."""

MEMORY, GATEWAY, TOOLS, ORCHESTRATOR, USER = "memory", "gateway", "tools", "orchestrator", "user"

KINDS = ("kill", "kill", "kill", "cut", "cut", "part", "slow", "model", "tool", "power", "EIO", "ENOSPC")
OF_PAIRS = ("cut", "part")
OF_ONE = {"power": MEMORY, "EIO": MEMORY, "ENOSPC": MEMORY, "model": GATEWAY, "tool": TOOLS}
"""What a fault of one service is a fault of."""

WHEN_BUSY = ("", "", "enqueue", "reject", "interrupt", "rollback")

INTERFERENCES = ("cancel", "cancel after_step", "steer", "attach", "leave", "go away", "state")


@dataclass(frozen=True, slots=True)
class Fault:
    at_s: float
    """From `act`'s start, or from the world's."""
    kind: str
    target: str
    other: str = ""
    """The other end, of a fault of a pair."""
    lasts_s: float = 1.0
    act: tuple[int, int] | None = None
    """Person and number of the act that it is to meet, of those that the plan has; None: it falls at any time."""
    turns: int = 0
    """Callbacks of the target until it is killed, or syncs until the power fails, so that both fall between any two."""

    def describe(self) -> str:
        other = f" and {self.other}" if self.other else ""
        return f"{self.kind} {self.target}{other} for {self.lasts_s:.1f} s"


@dataclass(frozen=True, slots=True)
class Interference:
    """What a person does while a run is on its way."""

    after_s: float
    kind: str


@dataclass(frozen=True, slots=True)
class Act:
    """A question, and what is done meanwhile."""

    pause_s: float
    chat: int
    agent: str
    when_busy: str
    interferences: tuple[Interference, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    replicas: int
    chats: int
    people: tuple[tuple[Act, ...], ...]
    faults: tuple[Fault, ...]

    @property
    def size(self) -> int:
        return len(self.faults) + sum(1 + len(act.interferences) for acts in self.people for act in acts)

    @property
    def orchestrators(self) -> list[str]:
        return [f"{ORCHESTRATOR}-{letter}" for letter in "abcde"[: self.replicas]]


def make_plan(seed: int) -> Plan:
    random = Random(f"{seed}/plan")
    replicas, chats = random.choice((1, 1, 2, 3, 5)), random.choice((1, 2, 3))
    people = tuple(
        tuple(_choose_act(random, chats) for _ in range(random.randint(1, 4))) for _ in range(random.choice((1, 2, 3)))
    )
    plan = Plan(seed, replicas, chats, people, ())
    names = [MEMORY, GATEWAY, TOOLS, *plan.orchestrators]
    acts = [(person, number) for person, acts in enumerate(people) for number in range(len(acts))]
    faults = tuple(_choose_fault(random, names, acts) for _ in range(random.randint(10, 16)))
    return Plan(seed, replicas, chats, people, faults)


def _choose_act(random: Random, chats: int) -> Act:
    agent = random.choice(("oneshot", "react", "react", "team", "compact"))
    interferences = tuple(
        Interference(random.uniform(0, 6), random.choice(INTERFERENCES)) for _ in range(random.choice((0, 0, 1, 1, 2)))
    )
    return Act(random.uniform(0, 20), random.randrange(chats), agent, random.choice(WHEN_BUSY), interferences)


def _choose_fault(random: Random, names: Sequence[str], acts: Sequence[tuple[int, int]]) -> Fault:
    kind = random.choice(KINDS)
    target, other = random.sample(names, 2)
    target = OF_ONE.get(kind, target)
    turns = 0
    if kind == "kill":
        turns = round(10 ** random.uniform(0, 3.3))
    elif kind in ("power", "cut"):
        turns = random.randint(1, 10)
    act = random.choice(acts) if random.random() < MEETING_SHARE else None
    at_s = random.uniform(0, SPAN_S if act is None else MEETING_S)
    other = other if kind in OF_PAIRS else ""
    lasts_s = random.uniform(*(WAITS_S if kind in ("kill", "power") else LASTS_S))
    return Fault(at_s, kind, target, other, lasts_s, act, turns)
