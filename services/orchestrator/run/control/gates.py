"""The gates of a run: who may answer each, what people have done to it, and its answer.

A gate is anything that a run waits for from outside: a person's word, or what a program's own function returns. The
first answer wins, and one that comes before the run waits for it is kept. A step, and an answer, is known here when the
log has it; until then the gate has the commit that is on its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Literal, TypeAlias

from headrace.errors import Claimed, Overloaded, QueueFull
from headrace.v1 import agent_pb2, common_pb2
from services.orchestrator.run.answers.call import Call
from services.runtime.auth.access import REQUESTER
from services.runtime.clock import now_ms

Outcome: TypeAlias = Literal["accepted", "repeated", "duplicate", "expired"]

VOTE, DELEGATED, ASKED_BACK = "vote", "delegated", "asked_back"
REMINDED, ESCALATED = "reminded", "escalated"
CLAIMED, RELEASED = "claimed", "released"
"""Steps of a gate."""

WIDENING = frozenset({DELEGATED, ESCALATED})
"""Steps after which those in `to` may answer too."""

EXPIRED = "expired"
"""State of a gate whose time was over before an answer."""

KEPT_MAX = 32
"""Answers that came before their gates. Each may be as large as a message."""

VOTES_MAX = 100
"""Edits begin the count of votes anew, so nothing else would end a quarrel."""

NOTES_MAX = 100
"""Delegations and questions, which are no votes and leave these their room."""

CLAIMS_MAX = 10_000
"""Claims and renewals of a run: a page that renews twice a minute has three days."""

CALL_WAIT_S = 3.0
"""An owner that has taken a run over replays it up to its gates in milliseconds."""

CATCH_UP_S = 3.0
"""While memory takes nothing, a step is on its way for minutes."""


@dataclass(frozen=True, slots=True)
class Submission:
    payload: str
    by: str = ""
    """The authenticated user; empty in logs of earlier versions."""
    credential: str = ""
    """How the user was proven; empty: by nothing."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One client of a user says that it answers the gate, for a while."""

    user: str
    holder: str
    until: int
    """Unix milliseconds."""


class Place(Enum):
    """Where the run is, seen from a gate."""

    AHEAD = "it has not come to the gate"
    HERE = "it waits at the gate, or has had an answer there before it was taken over"
    PASSED = "it has gone on, or was stopped here"


@dataclass(eq=False, slots=True)
class Gate:
    gate_id: str
    opened: agent_pb2.GateOpen = field(default_factory=agent_pb2.GateOpen)
    """How it was opened; empty for a program's function, and while an answer is here before the run is."""
    opened_at: int = 0
    """Unix milliseconds."""
    place: Place = Place.AHEAD
    call: asyncio.Future[Call] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """The call that the gate is about; there when this process has come to the gate."""

    taken: tuple[str, str] | None = None
    """Request id and user of the first answer, from the moment when it came."""
    answer_commit: asyncio.Future[None] | None = None
    """The commit of that answer; None where the log had it already."""
    answer: asyncio.Future[Submission | None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    """What the log has; None: the time is over, and nobody can answer any more."""

    answering: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Answers and steps are judged one after the other: each knows what the one before it has changed."""
    steps: list[agent_pb2.GateStep] = field(default_factory=list[agent_pb2.GateStep])
    """Those that change who may answer or what is decided, or that happen once."""
    step_commit: asyncio.Future[None] | None = None
    """The commit of the last step; what comes next waits for it, so that nothing is decided by a vote that is lost."""
    claim: Claim | None = None

    @property
    def is_opened(self) -> bool:
        return bool(self.opened.gate_id)

    @property
    def is_closed(self) -> bool:
        """Whether the run has its answer, or knows that there is none, and has gone on with that."""
        return self.place is Place.PASSED and self.answer.done()

    @property
    def answerers(self) -> common_pb2.Answerers:
        """Who may answer now: as the rule says, and those to whom it was passed."""
        rule = self.opened.answerers
        names = [name for step in self.steps if step.step in WIDENING for name in step.to]
        return common_pb2.Answerers(
            any_of=[*(rule.any_of or [REQUESTER]), *names], not_requester=rule.not_requester, count=rule.count or None
        )

    @property
    def votes(self) -> list[agent_pb2.GateStep]:
        """Approvals that count: the last edit, if any, and those after it."""
        votes = [step for step in self.steps if step.step == VOTE]
        edits = [index for index, vote in enumerate(votes) if vote.decision == "edit"]
        return votes[edits[-1] :] if edits else votes

    @property
    def arguments(self) -> str:
        """The arguments that the votes are for, as JSON text; empty: the call's own."""
        votes = self.votes
        return votes[0].arguments if votes else ""

    def has_step(self, kind: str, user: str, request_id: str) -> bool:
        """Say whether this request of the user has been taken; an empty `request_id` never has."""
        taken = ((step.step, step.by, step.request_id) for step in self.steps)
        return bool(request_id) and (kind, user, request_id) in taken

    def find_claim(self, user: str, holder: str) -> Claim | None:
        """Return the claim of this user and client; None where nobody has one.

        Raises:
            Claimed: Another client has one.
        """
        claim = self.claim
        if claim is None or claim.until <= now_ms():
            return None
        if (claim.user, claim.holder) != (user, holder):
            left_s = max(0.0, (claim.until - now_ms()) / 1000)
            until = datetime.fromtimestamp(claim.until / 1000, UTC).isoformat(timespec="seconds")
            problem = f"this gate is being answered by {claim.user!r} until {until}, in another client"
            given = {"gateId": self.gate_id, "claimedBy": claim.user, "until": claim.until}
            raise Claimed(problem, retry_after_s=left_s, **given)
        return claim

    def note(self, step: agent_pb2.GateStep) -> None:
        """Keep what a step of the log changes."""
        if step.step == CLAIMED:
            self.claim = Claim(step.by, step.holder, step.until)
        elif step.step == RELEASED:
            if self.claim is not None and (self.claim.user, self.claim.holder) == (step.by, step.holder):
                self.claim = None
        elif step.step in WIDENING or step.step in (VOTE, ASKED_BACK, REMINDED):
            self.steps.append(step)

    def list_due(self) -> list[tuple[int, agent_pb2.GateStep]]:
        """Return the steps that are still to happen by themselves, each with its time; each happens once."""
        opened, taken = self.opened, {step.step for step in self.steps}
        due: list[tuple[int, agent_pb2.GateStep]] = []
        if opened.remind_at and REMINDED not in taken:
            due.append((opened.remind_at, agent_pb2.GateStep(gate_id=self.gate_id, step=REMINDED)))
        if opened.escalate_at and ESCALATED not in taken:
            names = opened.answerers.escalate_to
            due.append((opened.escalate_at, agent_pb2.GateStep(gate_id=self.gate_id, step=ESCALATED, to=names)))
        return sorted(due, key=lambda one: one[0])

    @property
    def next_time(self) -> int:
        """When time next does something to the gate, in Unix milliseconds: a step, or its end."""
        return min([at for at, _ in self.list_due()] + [self.opened.expires_at])

    async def settle(self) -> None:
        """Return when the log has the last step; raises what the log refused it with."""
        if self.step_commit is not None:
            await asyncio.shield(self.step_commit)

    async def catch_up(self) -> None:
        """Return when the log has all that is on its way; raises as `settle`, and Overloaded after CATCH_UP_S."""
        try:
            async with asyncio.timeout(CATCH_UP_S), self.answering:
                await self.settle()
        except TimeoutError:
            raise Overloaded("the gate's last step is on its way to the log; try again") from None

    async def wait_for_call(self) -> Call:
        """Raises Overloaded where the run has not come to the gate yet, after it was taken over."""
        try:
            async with asyncio.timeout(CALL_WAIT_S):
                return await asyncio.shield(self.call)
        except TimeoutError:
            raise Overloaded("the run is being taken over by another process; try again") from None

    def foresee(self, request_id: str = "", by: str = "") -> Outcome:
        """Return what an answer would be now; with an empty `request_id` it is never `repeated`."""
        if self.taken is not None:
            # Logs of earlier versions do not say by whom.
            is_same = request_id and request_id == self.taken[0] and self.taken[1] in ("", by)
            return "repeated" if is_same else "duplicate"
        return "expired" if self.answer.done() else "accepted"

    def fulfil(self, submission: Submission) -> None:
        """Give the answer, which the log has, to whoever waits for it."""
        if not self.answer.done():
            self.answer.set_result(submission)

    def end(self) -> None:
        """End the gate's time: nobody has answered, and nobody can any more. An answer that has come stays."""
        if self.taken is None and not self.answer.done():
            self.answer.set_result(None)

    async def wait(self, timeout_s: float) -> Submission | None:
        """Return the answer; None after `timeout_s`, or where the time was over before."""
        self.place = Place.HERE
        try:
            async with asyncio.timeout(timeout_s):
                # Shielded: the timeout ends this wait, not the future that is given an answer on its way.
                return await asyncio.shield(self.answer)
        except TimeoutError:
            self.end()
            # One that was taken came in time and is on its way to the disk; a commit that fails ends the run.
            return await asyncio.shield(self.answer)
        finally:
            self.place = Place.PASSED


class Gates:
    """All gates of one run, each known until the run ends."""

    def __init__(self, events: Sequence[agent_pb2.AgentDelta] = ()) -> None:
        """`events` are those of the run's earlier owners."""
        self._gates: dict[str, Gate] = {}
        self._claims = 0
        """Claims and renewals in the log."""
        self._is_over = False
        for event in events:
            if event.HasField("gate_open"):
                self.open(event.gate_open, event.timestamp)
        for event in events:  # an opening that memory refused at first is behind what was done to its gate
            if event.HasField("gate_step") and event.gate_step.gate_id in self._gates:
                self.note(event.gate_step)
            elif event.HasField("request_submit"):
                submit = event.request_submit
                gate = self.get(submit.tool_id)
                gate.taken, gate.place = (submit.request_id, submit.by), Place.HERE
                gate.fulfil(Submission(submit.payload, submit.by, submit.credential))
        for close in (event.gate_close for event in events if event.HasField("gate_close")):
            gate = self.get(close.gate_id)
            gate.place = Place.PASSED
            if close.state == EXPIRED:
                gate.end()

    def __contains__(self, gate_id: str) -> bool:
        return gate_id in self._gates

    def get(self, gate_id: str) -> Gate:
        """Return the gate, which is known from now on."""
        if gate_id not in self._gates:
            self._gates[gate_id] = Gate(gate_id)
        return self._gates[gate_id]

    def find(self, gate_id: str) -> Gate | None:
        """Return a gate that is, or was, open; None for a call that no person answers, and for one not opened yet."""
        gate = self._gates.get(gate_id)
        return gate if gate is not None and gate.is_opened else None

    def open(self, opened: agent_pb2.GateOpen, opened_at: int = 0) -> Gate:
        """Know how a gate was opened, at `opened_at` or now; one that is open stays as it was."""
        gate = self.get(opened.gate_id)
        if not gate.is_opened:
            gate.opened, gate.opened_at = opened, opened_at or now_ms()
        return gate

    def list_waiting(self) -> list[Gate]:
        """List the open gates at which the run waits in this process, and that nobody has answered."""
        here = (gate for gate in self._gates.values() if gate.is_opened and gate.place is Place.HERE)
        return [gate for gate in here if gate.foresee() == "accepted"]

    def note(self, step: agent_pb2.GateStep) -> None:
        """Keep what a step of the log changes."""
        self._claims += step.step == CLAIMED
        self._gates[step.gate_id].note(step)

    def check_room(self, step: agent_pb2.GateStep) -> None:
        """Raises QueueFull where too much of this kind has happened to the gate, or to all of the run's."""
        if step.step == CLAIMED and self._claims >= CLAIMS_MAX:
            raise QueueFull(f"this run has been claimed {CLAIMS_MAX} times; its gates are answered without a claim")
        if step.step in (CLAIMED, RELEASED):
            return
        is_vote = step.step == VOTE
        same = sum((other.step == VOTE) == is_vote for other in self._gates[step.gate_id].steps)
        if same >= (VOTES_MAX if is_vote else NOTES_MAX):
            what = f"{VOTES_MAX} votes" if is_vote else f"{NOTES_MAX} delegations and questions"
            raise QueueFull(f"this gate has had {what}; answer it")

    def take(self, gate_id: str, request_id: str, by: str = "") -> Outcome:
        """Take the answer of the user `by`, if it is the first one: no other is accepted from now on.

        Raises:
            QueueFull: Too many are kept for gates to which the run has not come.
        """
        gate = self._gates.get(gate_id) or Gate(gate_id)
        if self._is_over:
            gate.end()
        if (outcome := gate.foresee(request_id, by)) != "accepted":
            return outcome
        kept = sum(other.taken is not None and other.place is Place.AHEAD for other in self._gates.values())
        if gate.place is Place.AHEAD and kept >= KEPT_MAX:
            raise QueueFull(f"{KEPT_MAX} submits are kept for waits that have not begun; try again later")
        self._gates[gate_id], gate.taken = gate, (request_id, by)
        return "accepted"

    def pass_over(self, asked_at: int) -> None:
        """End the time of every gate that was open at `asked_at`."""
        for gate in self._gates.values():
            if gate.is_opened and gate.opened_at <= asked_at:
                gate.end()

    def close(self) -> None:
        """Accept no answer any more: the run is over."""
        self._is_over = True
        for gate in self._gates.values():
            gate.end()
