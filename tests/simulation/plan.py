"""What people do and what goes wrong in a world, chosen by its seed; a shrunk plan has less of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

SPAN_S = 120.0
"""Simulated time within which faults begin."""

LASTS_S = (0.1, 20.0)

MEMORY, GATEWAY, TOOLS, ORCHESTRATOR, USER = "memory", "gateway", "tools", "orchestrator", "user"

KINDS = ("kill", "kill", "kill", "cut", "cut", "part", "slow", "model", "tool", "power", "EIO", "ENOSPC")
OF_PAIRS = ("cut", "part")
OF_MEMORY = ("power", "EIO", "ENOSPC")

WHEN_BUSY = ("", "", "enqueue", "reject", "interrupt", "rollback")

INTERFERENCES = ("cancel", "cancel after_step", "steer", "attach", "leave", "go away", "state")


@dataclass(frozen=True, slots=True)
class Fault:
    at_s: float
    kind: str
    target: str
    other: str = ""
    """The other end, of a fault of a pair."""
    lasts_s: float = 1.0
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
    faults = sorted((_choose_fault(random, names) for _ in range(random.randint(10, 16))), key=lambda fault: fault.at_s)
    return Plan(seed, replicas, chats, people, tuple(faults))


def _choose_act(random: Random, chats: int) -> Act:
    agent = random.choice(("oneshot", "react", "react", "team", "compact"))
    interferences = tuple(
        Interference(random.uniform(0, 6), random.choice(INTERFERENCES)) for _ in range(random.choice((0, 0, 1, 1, 2)))
    )
    return Act(random.uniform(0, 20), random.randrange(chats), agent, random.choice(WHEN_BUSY), interferences)


def _choose_fault(random: Random, names: Sequence[str]) -> Fault:
    kind = random.choice(KINDS)
    target, other = random.sample(names, 2)
    if kind in OF_MEMORY:
        target = MEMORY
    turns = 0
    if kind == "kill":
        turns = round(10 ** random.uniform(0, 3.3))
    elif kind in ("power", "cut"):
        turns = random.randint(1, 10)
    return Fault(
        random.uniform(0, SPAN_S), kind, target, other if kind in OF_PAIRS else "", random.uniform(*LASTS_S), turns
    )
