"""The actions of people and the faults of a world, chosen by its seed; a shrunk plan has fewer of both."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

SPAN_S = 120.0
"""Simulated time within which faults without a target act begin."""

MEETING_S, IN_PHASE_S = 8.0, 0.4
"""How long after a question, or after the beginning of a phase that they wait for, faults strike."""

START_S = 0.03
"""Time after a question within which faults strike before its first event."""

LASTS_S = (0.1, 20.0)

WAITS_S = (0.1, 3.0)
"""Half of the longest time that an idle process may take for its last turns."""

MEMORY, GATEWAY, TOOLS, ORCHESTRATOR, FACADE, USER = "memory", "gateway", "tools", "orchestrator", "facade", "user"
POSTGRES = "postgres"

EACH = (MEMORY, ORCHESTRATOR, GATEWAY, TOOLS, FACADE, POSTGRES)
KINDS = {
    **dict.fromkeys(("kill", "stop", "cut", "part", "slow"), EACH),
    **{"model": (GATEWAY,), "tool": (TOOLS,), "power": (MEMORY,), "EIO": (MEMORY,), "ENOSPC": (MEMORY, POSTGRES)},
    **{"failover": (POSTGRES,), "stall": (POSTGRES,)},
}
"""Kinds of faults, with the services that can have them."""

OF_DISK = ("power", "EIO", "ENOSPC")
"""Faults of memory's own disk, which memory does not use with PostgreSQL."""

SHARES = {FACADE: 0.5, POSTGRES: 0.65}
"""Shares of the faults in worlds with such a service, so that each kind strikes it as often as other services."""

PEERS = {
    MEMORY: (ORCHESTRATOR, ORCHESTRATOR, GATEWAY, USER),
    ORCHESTRATOR: (MEMORY, GATEWAY, TOOLS, USER),
    GATEWAY: (ORCHESTRATOR, ORCHESTRATOR, MEMORY),
    TOOLS: (ORCHESTRATOR,),
    FACADE: (ORCHESTRATOR, USER),
    POSTGRES: (MEMORY,),
}
"""The peers of a service, for faults of pairs."""
OF_PAIRS = ("cut", "part")
OF_WORK = ("model", "tool", "EIO", "ENOSPC")
"""Faults that affect a run's work: of a schedule if no person's run is open, of an earlier run at the start of
one.
"""

FAULTS = (17, 24)

POSTGRES_EVERY = 3
"""One world in this many has PostgreSQL."""

SKEWS_S = (0.0, 0.0, 0.1, 7.0)
"""Greatest clock errors in either direction: any two differ by less than a lease, as docs/operating.md requires."""

GATE_RULES = ("", "", "two", "four eyes", "escalating")
"""Rules for those who may answer when a tool needs approval (outside/outside.py).

Empty: all callers are one user, without a credential.
"""

PHASES = {"idle": 1, "start": 2, "model": 2, "tool": 1, "gate": 4, "compaction": 4, "between": 1}
"""Phases of an open run that a fault may strike, with their weights.

`start` lasts until the reader has an event; `idle` means no open run. A fault that misses a short or rare phase
strikes another one.
"""

WAITED_FOR = {
    "model": (),
    "tool": (),
    "gate": ("asks", "resigns", "yields", "team"),
    "compaction": ("small", "compact"),
    "between": (),
}
"""Phases that faults wait for, and the agents that reach them; no agents: all reach it."""

WHEN_BUSY = ("", "", "enqueue", "reject", "interrupt", "rollback")

AGENTS = (
    *("oneshot", "react", "react", "team", "compact", "asks", "asks", "resigns", "yields", "small", "small"),
    *("sequential", "parallel", "recursive", "thrifty", "spender", "spender"),
)
"""Agents of world/definitions.py; compact is a command to react."""

SPREE = 0.15
"""Share of the worlds in which people ask `spender` until the budget of all its runs is exhausted."""

IDLE_S = {("tool", TOOLS): 5.0, ("slow", FACADE): 10.0}
"""Least duration of faults that should strike while no person's run is open.

A schedule's first tool call comes after some seconds, and few people call the facade then.
"""

ERASED = 0.5
"""Share of the worlds with users in which one user is erased."""

ERASED_S, ERASING_S = (4.0, 40.0), 15.0
"""Time of the erasure, and its duration without faults."""

ERASURE_FAULTS = (2, 5)
"""Number of additional faults during the erasure."""

EDITED, EDITED_S, EDITS = 0.5, (3.0, 80.0), (2, 6)
"""Share of the worlds in which a person edits chats, and the time and number of the edits."""

EDIT_KINDS = ("title", "title", "pin", "pin", "unpin", "summary", "revert")

RECORDED = 0.2
"""Share of the questions with recorded runs."""

GUEST_AGENTS, HOST_AGENTS = ("oneshot", "small", "asks", "react"), ("oneshot", "small", "small", "compact")

MINUTES_S = (60.0, 120.0, 180.0)
"""Times of repeating schedules, which every world has in its first minutes."""

INTERFERENCES = (
    *("cancel", "cancel after_step", "operator cancel", "steer", "attach", "leave", "go away", "state", "state"),
    *("fork", "share"),
)

ANSWERS = ("approve", "approve", "edit", "reject", "twice", "repeat", "late", "never")
"""A person's answers at the gates of a run."""


@dataclass(frozen=True, slots=True)
class Fault:
    at_s: float
    """Time since the act's start, its phase, or the world's start."""
    kind: str
    target: str
    other: str = ""
    """The other end of a fault of a pair; ORCHESTRATOR: all of them."""
    lasts_s: float = 1.0
    act: tuple[int, int] | None = None
    """Person and number of the act that the fault should strike; None: it strikes at any time."""
    phase: str = ""
    """Phase of the act's run that the fault waits for; empty: none."""
    turns: int = 0
    """Callbacks of the target until it is killed, or syncs until the power fails, so that both fall between any
    two.
    """

    def describe(self) -> str:
        other = f" and {self.other}" if self.other else ""
        return f"{self.kind} {self.target}{other} for {self.lasts_s:.1f} s"


@dataclass(frozen=True, slots=True)
class Interference:
    """A person's action during a run."""

    after_s: float
    kind: str


@dataclass(frozen=True, slots=True)
class Act:
    """A question, and the actions during its run."""

    pause_s: float
    chat: int
    agent: str
    when_busy: str
    interferences: tuple[Interference, ...] = ()
    answer: str = "reject"
    """One of ANSWERS."""
    is_http: bool = False
    """Whether the question uses HTTP, in worlds with a facade."""
    is_recorded: bool = False
    """Whether the run is recorded for a cassette."""


@dataclass(frozen=True, slots=True)
class PlannedSchedule:
    at_s: float
    """Time of creation, from the world's start."""
    every_minutes: int
    """Interval; 0: the schedule has a single time."""
    in_s: float
    """Delay of the single time after the creation."""
    agent: str
    chat: int | None
    """None: each run has its own chat."""
    overlap: str
    catch_up: bool
    triggers_s: tuple[float, ...] = ()
    """Times of additional triggers after the creation."""


@dataclass(frozen=True, slots=True)
class PlannedEdit:
    """The owner's change of a chat's display."""

    at_s: float
    """Time since the world's start; a later edit waits for the one before."""
    chat: int
    kind: str
    """One of EDIT_KINDS."""


@dataclass(frozen=True, slots=True)
class PlannedErasure:
    """The erasure of a guest in another person's chat while the guest is active."""

    at_s: float
    """From the world's start."""
    acts: tuple[Act, ...]
    """Acts of the guest; chat 0 is the other person's."""
    host_acts: tuple[Act, ...] = ()
    """Acts of the other person in that chat."""


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    replicas: int
    gateways: int
    has_provider: bool
    """Whether the gateways are real ones, in front of a scripted provider; otherwise a scripted model replaces
    them.
    """
    chats: int
    people: tuple[tuple[Act, ...], ...]
    faults: tuple[Fault, ...]
    schedules: tuple[PlannedSchedule, ...] = ()
    approvers: int = 0
    """Number of other people who find gates and answer them."""
    gate_rule: str = ""
    """One of GATE_RULES."""
    skew_s: float = 0.0
    """Greatest error of the services' clocks."""
    has_webhook: bool = False
    has_postgres: bool = False
    """Whether memory stores chats in PostgreSQL; otherwise it uses a folder."""
    memories: int = 1
    """Number of memory services; several share one database."""
    has_facade: bool = False
    has_watcher: bool = False
    """Whether a person watches the waiting gates."""
    erasure: PlannedErasure | None = None
    """Only in worlds with users."""
    edits: tuple[PlannedEdit, ...] = ()

    @property
    def size(self) -> int:
        guests = (self.erasure.acts, self.erasure.host_acts) if self.erasure is not None else ()
        acts = sum(1 + len(act.interferences) for acts in (*self.people, *guests) for act in acts)
        return len(self.faults) + len(self.schedules) + len(self.edits) + self.approvers + acts

    @property
    def orchestrators(self) -> list[str]:
        return [f"{ORCHESTRATOR}-{letter}" for letter in "abcde"[: self.replicas]]

    @property
    def memory_services(self) -> list[str]:
        return [MEMORY, f"{MEMORY}-b"][: self.memories]

    @property
    def llm_gateways(self) -> list[str]:
        return [f"{GATEWAY}-{letter}" for letter in "ab"[: self.gateways]]


def make_plan(seed: int) -> Plan:
    random = Random(f"{seed}/plan")
    replicas, gateways, chats = random.choice((1, 1, 2, 3, 5)), random.choice((1, 2)), random.choice((1, 2, 3))
    people = _choose_people(random, chats)
    schedules = tuple(_choose_schedule(random, chats) for _ in range(random.choice((0, 0, 1, 2))))
    plan = Plan(
        seed=seed,
        replicas=replicas,
        gateways=gateways,
        has_provider=random.random() < 0.5,
        chats=chats,
        people=people,
        faults=(),
        schedules=schedules,
        approvers=random.choice((0, 1, 2)),
        gate_rule=random.choice(GATE_RULES),
        skew_s=random.choice(SKEWS_S),
        has_webhook=random.random() < 0.5,
        has_watcher=random.random() < 0.5,
        has_postgres=seed % POSTGRES_EVERY == 0,
    )
    if plan.has_postgres:
        plan = replace(plan, memories=random.choice((1, 2)))
    # The facade of a world with users would need their keys.
    plan = replace(plan, has_facade=not plan.gate_rule and random.random() < 0.8)
    acts = [(person, number) for person, acts in enumerate(people) for number in range(len(acts))]
    plan = replace(plan, faults=tuple(_choose_fault(random, plan, acts) for _ in range(random.randint(*FAULTS))))
    plan = replace(plan, edits=_choose_edits(seed, chats))
    return _choose_recorded(_add_erasure(plan, acts) if plan.gate_rule else plan)


def _choose_recorded(plan: Plan) -> Plan:
    random = Random(f"{plan.seed}/recorded")

    def choose(acts: tuple[Act, ...]) -> tuple[Act, ...]:
        return tuple(replace(act, is_recorded=random.random() < RECORDED) for act in acts)

    plan = replace(plan, people=tuple(choose(acts) for acts in plan.people))
    if (erasure := plan.erasure) is None:
        return plan
    erasure = replace(erasure, acts=choose(erasure.acts), host_acts=choose(erasure.host_acts))
    return replace(plan, erasure=erasure)


def _choose_edits(seed: int, chats: int) -> tuple[PlannedEdit, ...]:
    random = Random(f"{seed}/edits")  # a separate one: worlds without edits do not change
    if random.random() >= EDITED:
        return ()
    times_s = sorted(random.uniform(*EDITED_S) for _ in range(random.randint(*EDITS)))
    return tuple(PlannedEdit(at_s, random.randrange(chats), random.choice(EDIT_KINDS)) for at_s in times_s)


def _add_erasure(plan: Plan, acts: Sequence[tuple[int, int]]) -> Plan:
    """Add an erasure, and faults that strike it, to some worlds."""
    random = Random(f"{plan.seed}/erasure")  # a separate one: worlds without an erasure do not change
    if random.random() >= ERASED:
        return plan
    at_s = random.uniform(*ERASED_S)
    count = random.randint(1, 4)
    guest_acts = tuple(_choose_guest_act(random) for _ in range(count))
    erasure = PlannedErasure(at_s, guest_acts, tuple(_choose_host_act(random) for _ in range(random.randint(0, 3))))
    meeting = [
        replace(_choose_fault(random, plan, acts), at_s=at_s + random.uniform(0, ERASING_S), act=None, phase="")
        for _ in range(random.randint(*ERASURE_FAULTS))
    ]
    return replace(plan, erasure=erasure, faults=(*plan.faults, *meeting))


def _choose_guest_act(random: Random) -> Act:
    pause_s, chat, agent = random.uniform(0, 12), random.randrange(3), random.choice(GUEST_AGENTS)
    return Act(pause_s, chat, agent, "enqueue", answer=random.choice(("approve", "never")))


def _choose_host_act(random: Random) -> Act:
    agent, interference = random.choice(HOST_AGENTS), random.choice(("fork", "fork", "attach", "leave", ""))
    interferences = (Interference(random.uniform(0, 20), interference),) if interference else ()
    return Act(random.uniform(0, 15), 0, agent, "enqueue", interferences, answer="approve")


def _choose_people(random: Random, chats: int) -> tuple[tuple[Act, ...], ...]:
    """Choose acts so that in most worlds, a run reaches each of the rare phases."""
    counts = [random.randint(1, 4) for _ in range(random.choice((1, 2, 3)))]
    agents = [random.choice(agents) for agents in WAITED_FOR.values() if agents]
    others = ("spender",) if random.random() < SPREE else AGENTS
    agents = (agents + random.choices(others, k=sum(counts)))[: sum(counts)]
    random.shuffle(agents)
    return tuple(tuple(_choose_act(random, chats, agents.pop()) for _ in range(count)) for count in counts)


def _choose_act(random: Random, chats: int, agent: str) -> Act:
    interferences = tuple(
        Interference(random.uniform(0, 6), random.choice(INTERFERENCES)) for _ in range(random.choice((0, 0, 1, 1, 2)))
    )
    when_busy, answer = random.choice(WHEN_BUSY), random.choice(ANSWERS)
    pause_s, chat, is_http = random.uniform(0, 20), random.randrange(chats), random.random() < 0.7
    return Act(pause_s, chat, agent, when_busy, interferences, answer, is_http)


def _choose_schedule(random: Random, chats: int) -> PlannedSchedule:
    return PlannedSchedule(
        at_s=random.uniform(0, 20),
        every_minutes=random.choice((0, 1, 2)),
        in_s=random.uniform(5, 90),
        agent=random.choice(("oneshot", "react", "react")),
        chat=random.choice((None, random.randrange(chats))),
        overlap=random.choice(("skip", "queue")),
        catch_up=random.random() < 0.5,
        triggers_s=tuple(random.uniform(1, 60) for _ in range(random.choice((0, 0, 1, 2)))),
    )


def _choose_fault(random: Random, plan: Plan, acts: Sequence[tuple[int, int]]) -> Fault:
    """Choose a fault so that each kind strikes each phase of each service about equally often."""
    kind, service = random.choice(_list_faults(plan, random))
    target = _choose_process(random, plan, service)
    other = _choose_other(random, plan, random.choice(PEERS[service])) if kind in OF_PAIRS else ""
    turns = 0
    if kind == "kill":
        turns = round(10 ** random.uniform(0, 3.3))
    elif kind in ("power", "cut") or service == POSTGRES:
        turns = random.randint(1, 10)
    lasts_s = random.uniform(*(WAITS_S if kind in ("kill", "power", "stop") else LASTS_S))
    [phase] = random.choices([*PHASES], [*PHASES.values()])
    if phase == "idle":
        lasts_s = max(lasts_s, IDLE_S.get((kind, service), 0.0))
        return Fault(_choose_idle_s(random, plan, kind, lasts_s), kind, target, other, lasts_s, None, "", turns)
    agents = WAITED_FOR.get(phase, ())
    able = [at for at in acts if plan.people[at[0]][at[1]].agent in agents]
    act = random.choice(able or acts)
    if phase == "start" and kind in OF_WORK:
        queued = [at for at in acts if plan.people[at[0]][at[1]].when_busy == "enqueue"]
        act = random.choice(queued or acts)
    if phase == "start":
        return Fault(random.uniform(0, START_S), kind, target, other, lasts_s, act, "", turns)
    if phase not in WAITED_FOR or (agents and not able):
        return Fault(random.uniform(0, MEETING_S), kind, target, other, lasts_s, act, "", turns)
    return Fault(random.uniform(0, IN_PHASE_S), kind, target, other, lasts_s, act, phase, turns)


def _choose_idle_s(random: Random, plan: Plan, kind: str, lasts_s: float) -> float:
    """Choose the start of a fault at a time without a person's run; a fault that needs work strikes a
    schedule's run.
    """
    times_s = [
        time_s
        for schedule in plan.schedules
        if kind != "tool" or schedule.agent == "react"
        for time_s in _list_times_s(schedule)
    ]
    if kind == "tool" and times_s:
        return max(times_s) - random.uniform(0, 1)  # most people are done by the last
    if kind in OF_WORK and times_s:
        return max(0.0, random.choice(times_s) - random.uniform(0, lasts_s / 2))
    return random.uniform(0, SPAN_S)


def _list_times_s(schedule: PlannedSchedule) -> list[float]:
    """Return the start times of a schedule's runs, from the world's start."""
    times_s = MINUTES_S if schedule.every_minutes else (schedule.at_s + schedule.in_s,)
    return [*times_s, *(schedule.at_s + after_s for after_s in schedule.triggers_s)]


def _list_faults(plan: Plan, random: Random) -> list[tuple[str, str]]:
    """Return the kinds of faults of the facade, of PostgreSQL or of the other services, with their services."""
    of = FACADE if plan.has_facade and random.random() < SHARES[FACADE] else ""
    if not of and plan.has_postgres and random.random() < SHARES[POSTGRES]:
        of = POSTGRES
    return [
        (kind, service)
        for kind, services in KINDS.items()
        for service in services
        if (service == of if of else service not in (FACADE, POSTGRES))
        and not (plan.has_postgres and service == MEMORY and kind in OF_DISK)
    ]


def _choose_other(random: Random, plan: Plan, service: str) -> str:
    """Return the other end of a fault of a pair: a process, or all orchestrators."""
    if service == ORCHESTRATOR and random.random() < 0.5:
        return ORCHESTRATOR
    return _choose_process(random, plan, service)


def _choose_process(random: Random, plan: Plan, service: str) -> str:
    """Return the name of one of the service's processes, or of a person."""
    several = {
        MEMORY: plan.memory_services,
        ORCHESTRATOR: plan.orchestrators,
        GATEWAY: plan.llm_gateways,
        USER: [f"{USER}-{number}" for number in range(len(plan.people))],
    }
    return random.choice(several.get(service, [service]))
