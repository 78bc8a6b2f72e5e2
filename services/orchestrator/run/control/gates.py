"""The gates of a run: who may answer each, the steps people have taken, and its answer.

A gate is anything external that a run waits for: a person's decision, or the result of a program's function. The first
answer wins; one that comes before the run waits for it is kept. A step or an answer is visible here once it is in the
log; until then the gate holds its pending commit.
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
"""Steps that allow the users in `to` to answer as well."""

EXPIRED = "expired"
"""State of a gate that expired without an answer."""

KEPT_MAX = 32
"""Maximum answers kept for gates not yet reached. Each may be as large as a message."""

VOTES_MAX = 100
"""Maximum votes; edits restart the count, so nothing else would end a dispute."""

NOTES_MAX = 100
"""Maximum delegations and questions, counted separately so that they do not use up the votes."""

CLAIMS_MAX = 10_000
"""Maximum claims and renewals of a run: three days for a page that renews twice a minute."""

CALL_WAIT_S = 3.0
"""Time to wait for a run that was taken over to reach its gates; the replay takes milliseconds."""

CATCH_UP_S = 3.0
"""Time to wait for pending steps; a commit may take minutes while memory is unavailable."""


@dataclass(frozen=True, slots=True)
class Submission:
    payload: str
    by: str = ""
    """The authenticated user; empty in logs of earlier versions."""
    credential: str = ""
    """How the user was authenticated; empty without authentication."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A client's reservation of the gate for a limited time."""

    user: str
    holder: str
    until: int
    """Unix milliseconds."""


class Place(Enum):
    """The run's position relative to a gate."""

    AHEAD = "it has not come to the gate"
    HERE = "it waits at the gate, or has had an answer there before it was taken over"
    PASSED = "it has gone on, or was stopped here"


@dataclass(eq=False, slots=True)
class Gate:
    gate_id: str
    opened: agent_pb2.GateOpen = field(default_factory=agent_pb2.GateOpen)
    """The opening event; empty for a program's function, and for an answer that came before the run."""
    opened_at: int = 0
    """Unix milliseconds."""
    place: Place = Place.AHEAD
    call: asyncio.Future[Call] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """The call of the gate; set when this process reaches the gate."""

    taken: tuple[str, str] | None = None
    """Request id and user of the first answer, from the moment it arrives."""
    answer_commit: asyncio.Future[None] | None = None
    """The commit of that answer; None if it was in the log already."""
    answer: asyncio.Future[Submission | None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    """The answer in the log; None: the gate expired, and can no longer be answered."""

    answering: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Serializes answers and steps, so that each sees the effect of the previous one."""
    steps: list[agent_pb2.GateStep] = field(default_factory=list[agent_pb2.GateStep])
    """Steps that change the answerers or the decision, or that happen only once."""
    step_commit: asyncio.Future[None] | None = None
    """The commit of the last step; the next one waits for it, so that a lost vote decides nothing."""
    claim: Claim | None = None

    @property
    def is_opened(self) -> bool:
        return bool(self.opened.gate_id)

    @property
    def is_closed(self) -> bool:
        """Whether the run has continued past the gate, with an answer or after it expired."""
        return self.place is Place.PASSED and self.answer.done()

    @property
    def answerers(self) -> common_pb2.Answerers:
        """Current answerers: those of the rule, and users it was delegated or escalated to."""
        rule = self.opened.answerers
        names = [name for step in self.steps if step.step in WIDENING for name in step.to]
        return common_pb2.Answerers(
            any_of=[*(rule.any_of or [REQUESTER]), *names], not_requester=rule.not_requester, count=rule.count or None
        )

    @property
    def votes(self) -> list[agent_pb2.GateStep]:
        """Valid approvals: the last edit, if any, and those after it."""
        votes = [step for step in self.steps if step.step == VOTE]
        edits = [index for index, vote in enumerate(votes) if vote.decision == "edit"]
        return votes[edits[-1] :] if edits else votes

    @property
    def arguments(self) -> str:
        """The arguments that the votes approve, as JSON text; empty for the call's own."""
        votes = self.votes
        return votes[0].arguments if votes else ""

    def has_step(self, kind: str, user: str, request_id: str) -> bool:
        """Return whether this request of the user has been recorded; an empty `request_id` never has."""
        taken = ((step.step, step.by, step.request_id) for step in self.steps)
        return bool(request_id) and (kind, user, request_id) in taken

    def find_claim(self, user: str, holder: str) -> Claim | None:
        """Return the claim of this user and client; None if the gate is not claimed.

        Raises:
            Claimed: Another client has claimed it.
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
        """Apply a logged step."""
        if step.step == CLAIMED:
            self.claim = Claim(step.by, step.holder, step.until)
        elif step.step == RELEASED:
            if self.claim is not None and (self.claim.user, self.claim.holder) == (step.by, step.holder):
                self.claim = None
        elif step.step in WIDENING or step.step in (VOTE, ASKED_BACK, REMINDED):
            self.steps.append(step)

    def list_due(self) -> list[tuple[int, agent_pb2.GateStep]]:
        """Return the timed steps that have not happened yet, each with its time; each happens once."""
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
        """Time of the gate's next timed step or of its expiry, in Unix milliseconds."""
        return min([at for at, _ in self.list_due()] + [self.opened.expires_at])

    async def flush(self) -> None:
        """Return when the last step is in the log; raises the error if the log refused it."""
        if self.step_commit is not None:
            await asyncio.shield(self.step_commit)

    async def catch_up(self) -> None:
        """Return when no commit is pending; raises the errors of `flush`, and Overloaded after CATCH_UP_S."""
        try:
            async with asyncio.timeout(CATCH_UP_S), self.answering:
                await self.flush()
        except TimeoutError:
            raise Overloaded("the gate's last step is on its way to the log; try again") from None

    async def wait_for_call(self) -> Call:
        """Return the call. Raises Overloaded if the run, after a takeover, has not reached the gate yet."""
        try:
            async with asyncio.timeout(CALL_WAIT_S):
                return await asyncio.shield(self.call)
        except TimeoutError:
            raise Overloaded("the run is being taken over by another process; try again") from None

    def foresee(self, request_id: str = "", by: str = "") -> Outcome:
        """Return the outcome that an answer would have now; with an empty `request_id` it is never `repeated`."""
        if self.taken is not None:
            # Logs of earlier versions do not record the user.
            is_same = request_id and request_id == self.taken[0] and self.taken[1] in ("", by)
            return "repeated" if is_same else "duplicate"
        return "expired" if self.answer.done() else "accepted"

    def fulfil(self, submission: Submission) -> None:
        """Pass the logged answer to the waiting run."""
        if not self.answer.done():
            self.answer.set_result(submission)

    def end(self) -> None:
        """Expire the gate, so that it can no longer be answered. An answer already received is kept."""
        if self.taken is None and not self.answer.done():
            self.answer.set_result(None)

    async def wait(self, timeout_s: float) -> Submission | None:
        """Return the answer; None after `timeout_s`, or if the gate has expired."""
        self.place = Place.HERE
        try:
            async with asyncio.timeout(timeout_s):
                # Shielded: the timeout ends only this wait, not the future, which may still receive an answer.
                return await asyncio.shield(self.answer)
        except TimeoutError:
            self.end()
            # An accepted answer came in time and is being committed; a failing commit ends the run.
            return await asyncio.shield(self.answer)
        finally:
            self.place = Place.PASSED


class Gates:
    """All gates of one run; each is kept until the run ends."""

    def __init__(self, events: Sequence[agent_pb2.AgentDelta] = ()) -> None:
        """`events` are those of the run's earlier owners."""
        self._gates: dict[str, Gate] = {}
        self._claims = 0
        """Number of claims and renewals in the log."""
        self._is_over = False
        for event in events:
            if event.HasField("gate_open"):
                self.open(event.gate_open, event.timestamp)
        for event in events:  # an opening that memory refused at first may come after the steps of its gate
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
        """Return the gate, created if necessary."""
        if gate_id not in self._gates:
            self._gates[gate_id] = Gate(gate_id)
        return self._gates[gate_id]

    def find(self, gate_id: str) -> Gate | None:
        """Return a gate that is or was open; None for a call that no person answers, and before the gate opens."""
        gate = self._gates.get(gate_id)
        return gate if gate is not None and gate.is_opened else None

    def open(self, opened: agent_pb2.GateOpen, opened_at: int = 0) -> Gate:
        """Record a gate's opening, at `opened_at` or now; a gate already open is unchanged."""
        gate = self.get(opened.gate_id)
        if not gate.is_opened:
            gate.opened, gate.opened_at = opened, opened_at or now_ms()
        return gate

    def list_waiting(self) -> list[Gate]:
        """List the open, unanswered gates at which the run waits in this process."""
        here = (gate for gate in self._gates.values() if gate.is_opened and gate.place is Place.HERE)
        return [gate for gate in here if gate.foresee() == "accepted"]

    def note(self, step: agent_pb2.GateStep) -> None:
        """Apply a logged step."""
        self._claims += step.step == CLAIMED
        self._gates[step.gate_id].note(step)

    def check_room(self, step: agent_pb2.GateStep) -> None:
        """Raise QueueFull if the gate, or the run, has too many steps of this kind."""
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
        """Accept the answer of the user `by` if it is the first; no other is accepted afterwards.

        Raises:
            QueueFull: Too many answers are kept for gates that the run has not reached.
        """
        gate = self._gates.get(gate_id) or Gate(gate_id)
        if self._is_over:
            gate.end()
        if (outcome := gate.foresee(request_id, by)) != "accepted":
            return outcome
        kept = sum(other.taken is not None and other.place is Place.AHEAD for other in self._gates.values())
        if gate.place is Place.AHEAD and kept >= KEPT_MAX:
            raise QueueFull(f"{KEPT_MAX} submits are kept for waits that have not started; try again later")
        self._gates[gate_id], gate.taken = gate, (request_id, by)
        return "accepted"

    def pass_over(self, asked_at: int) -> None:
        """Expire every gate that was open at `asked_at`."""
        for gate in self._gates.values():
            if gate.is_opened and gate.opened_at <= asked_at:
                gate.end()

    def close(self) -> None:
        """Accept no more answers, because the run has ended."""
        self._is_over = True
        for gate in self._gates.values():
            gate.end()
