"""What people do and what goes wrong in a world, chosen by its seed; a shrunk plan has less of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

SPAN_S = 120.0
"""Simulated time within which faults begin that are to meet nothing."""

MEETING_SHARE, MEETING_S = 0.8, 8.0
"""Share of the faults that begin while somebody is likely to wait, and how long after the question."""

PHASE_SHARE, IN_PHASE_S = 0.5, 0.4
"""Share of those that wait until the run is in a phase, and how long after its beginning they strike."""

LASTS_S = (0.1, 20.0)

WAITS_S = (0.1, 3.0)
"""Half of the time for which a process that does little may take its last turns."""

MEMORY, GATEWAY, TOOLS, ORCHESTRATOR, USER = "memory", "gateway", "tools", "orchestrator", "user"

KINDS = (
    *("kill", "kill", "kill", "stop", "cut", "cut", "part", "part", "slow"),
    *("model", "tool", "power", "EIO", "ENOSPC"),
)
OF_PAIRS = ("cut", "part")
OF_ONE = {"power": MEMORY, "EIO": MEMORY, "ENOSPC": MEMORY, "model": GATEWAY, "tool": TOOLS}
"""What a fault of one service is a fault of."""

FAULTS = (14, 20)

PHASES = ("idle", "start", "model", "tool", "gate", "compaction", "between")
"""What the newest open run was doing when a fault hit: `start` until its reader has an event, `idle` without one."""

MET_PHASES = ("model", "tool", "gate", "compaction", "compaction", "between")
"""Phases that faults wait for."""

WHEN_BUSY = ("", "", "enqueue", "reject", "interrupt", "rollback")

AGENTS = (
    *("oneshot", "react", "react", "team", "compact", "asks", "asks", "small", "small"),
    *("sequential", "parallel", "recursive", "thrifty"),
)
"""Agents of world/definitions.py; compact is a command to react."""

INTERFERENCES = ("cancel", "cancel after_step", "steer", "attach", "leave", "go away", "state", "state", "fork")

ANSWERS = ("approve", "approve", "edit", "reject", "twice", "repeat", "late", "never")
"""What a person does at the gates of a run."""


@dataclass(frozen=True, slots=True)
class Fault:
    at_s: float
    """From `act`'s start, from its phase, or from the world's start."""
    kind: str
    target: str
    other: str = ""
    """The other end, of a fault of a pair."""
    lasts_s: float = 1.0
    act: tuple[int, int] | None = None
    """Person and number of the act that it is to meet, of those that the plan has; None: it falls at any time."""
    phase: str = ""
    """Phase of a run that it waits for, behind the act's start; empty: none."""
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
    answer: str = "reject"
    """One of ANSWERS."""


@dataclass(frozen=True, slots=True)
class PlannedSchedule:
    at_s: float
    """When it is made, from the world's start."""
    every_minutes: int
    """0: it has one time."""
    in_s: float
    """How long after it is made its one time is."""
    agent: str
    chat: int | None
    """None: each run has a chat of its own."""
    overlap: str
    catch_up: bool
    triggers_s: tuple[float, ...] = ()
    """When it is triggered beside its times, from when it is made."""


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    replicas: int
    gateways: int
    has_provider: bool
    """Whether the gateways are real ones, before a scripted provider; else a scripted model stands for them."""
    chats: int
    people: tuple[tuple[Act, ...], ...]
    faults: tuple[Fault, ...]
    schedules: tuple[PlannedSchedule, ...] = ()
    has_approver: bool = False
    """Whether a second client looks for gates and answers them."""

    @property
    def size(self) -> int:
        acts = sum(1 + len(act.interferences) for acts in self.people for act in acts)
        return len(self.faults) + len(self.schedules) + self.has_approver + acts

    @property
    def orchestrators(self) -> list[str]:
        return [f"{ORCHESTRATOR}-{letter}" for letter in "abcde"[: self.replicas]]

    @property
    def llm_gateways(self) -> list[str]:
        return [f"{GATEWAY}-{letter}" for letter in "ab"[: self.gateways]]


def make_plan(seed: int) -> Plan:
    random = Random(f"{seed}/plan")
    replicas, gateways, chats = random.choice((1, 1, 2, 3, 5)), random.choice((1, 2)), random.choice((1, 2, 3))
    people = tuple(
        tuple(_choose_act(random, chats) for _ in range(random.randint(1, 4))) for _ in range(random.choice((1, 2, 3)))
    )
    schedules = tuple(_choose_schedule(random, chats) for _ in range(random.choice((0, 0, 1, 2))))
    has_approver, has_provider = random.random() < 0.5, random.random() < 0.5
    plan = Plan(seed, replicas, gateways, has_provider, chats, people, (), schedules, has_approver)
    acts = [(person, number) for person, acts in enumerate(people) for number in range(len(acts))]
    return replace(plan, faults=tuple(_choose_fault(random, plan, acts) for _ in range(random.randint(*FAULTS))))


def _choose_act(random: Random, chats: int) -> Act:
    interferences = tuple(
        Interference(random.uniform(0, 6), random.choice(INTERFERENCES)) for _ in range(random.choice((0, 0, 1, 1, 2)))
    )
    agent, when_busy, answer = random.choice(AGENTS), random.choice(WHEN_BUSY), random.choice(ANSWERS)
    return Act(random.uniform(0, 20), random.randrange(chats), agent, when_busy, interferences, answer)


def _choose_schedule(random: Random, chats: int) -> PlannedSchedule:
    return PlannedSchedule(
        at_s=random.uniform(0, 20),
        every_minutes=random.choice((0, 1, 2)),
        in_s=random.uniform(5, 90),
        agent=random.choice(("oneshot", "react")),
        chat=random.choice((None, random.randrange(chats))),
        overlap=random.choice(("skip", "queue")),
        catch_up=random.random() < 0.5,
        triggers_s=tuple(random.uniform(1, 60) for _ in range(random.choice((0, 0, 1, 2)))),
    )


def _choose_fault(random: Random, plan: Plan, acts: Sequence[tuple[int, int]]) -> Fault:
    kind = random.choice(KINDS)
    target, other = _choose_pair(random, plan)
    if kind not in OF_PAIRS:
        target, other = random.choice((MEMORY, TOOLS, *plan.llm_gateways, *plan.orchestrators)), ""
    target = random.choice(plan.llm_gateways) if kind == "model" else OF_ONE.get(kind, target)
    turns = 0
    if kind == "kill":
        turns = round(10 ** random.uniform(0, 3.3))
    elif kind in ("power", "cut"):
        turns = random.randint(1, 10)
    act = random.choice(acts) if random.random() < MEETING_SHARE else None
    phase = random.choice(MET_PHASES) if act is not None and random.random() < PHASE_SHARE else ""
    at_s = random.uniform(0, IN_PHASE_S if phase else SPAN_S if act is None else MEETING_S)
    lasts_s = random.uniform(*(WAITS_S if kind in ("kill", "power", "stop") else LASTS_S))
    return Fault(at_s, kind, target, other, lasts_s, act, phase, turns)


def _choose_pair(random: Random, plan: Plan) -> tuple[str, str]:
    """Choose two ends that speak with each other, in either order: each has its own name in the counts."""
    orchestrator = random.choice(plan.orchestrators)
    peers = [MEMORY, TOOLS, random.choice(plan.llm_gateways), f"{USER}-{random.randrange(len(plan.people))}"]
    pair = [orchestrator, random.choice(peers)]
    if random.random() < 0.2:
        pair = [MEMORY, random.choice((random.choice(plan.llm_gateways), peers[-1]))]
    if not pair[1].startswith(USER):
        random.shuffle(pair)
    return pair[0], pair[1]
