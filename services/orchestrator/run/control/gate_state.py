"""What a run knows of a gate: the rule that it was opened with, what has happened since, and the call that waits."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from headrace.errors import Overloaded, QueueFull
from headrace.v1 import agent_pb2, common_pb2
from services.orchestrator.run.answers.call import Call
from services.runtime.auth.answerers import REQUESTER

VOTE, DELEGATED, ASKED_BACK = "vote", "delegated", "asked_back"
REMINDED, ESCALATED = "reminded", "escalated"

WIDENING = frozenset({DELEGATED, ESCALATED})
"""Steps after which those in `to` may answer too."""

CALL_WAIT_S = 3.0
"""An owner that has taken a run over replays it up to its waits in milliseconds."""

VOTES_MAX = 100
"""Edits begin the count of votes anew, so nothing else would end a quarrel."""

NOTES_MAX = 100
"""Delegations and questions, which are no votes and leave these their room."""

CATCH_UP_S = 3.0
"""While memory takes nothing, a step is on its way for minutes."""


@dataclass(slots=True)
class GateState:
    """Steps are noted when the log has them, by those who hold `answering`."""

    opened: agent_pb2.GateOpen
    opened_at: int = 0
    """Unix milliseconds."""
    answering: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Answers are judged one after the other: each knows what the one before it has changed."""
    call: asyncio.Future[Call] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """The call that is asked about; there when this process has come to the wait."""

    steps: list[agent_pb2.GateStep] = field(default_factory=list[agent_pb2.GateStep])
    committing: asyncio.Future[None] | None = None
    """The commit of the last step; what comes next waits for it, so that nothing is decided by a vote that is lost."""

    @property
    def gate_id(self) -> str:
        return self.opened.gate_id

    @property
    def answerers(self) -> common_pb2.Answerers:
        """Who may answer now: as the rule says, and those whom it was passed to."""
        names = [name for step in self.steps if step.step in WIDENING for name in step.to]
        return common_pb2.Answerers(
            any_of=[*(self.opened.answerers.any_of or [REQUESTER]), *names],
            not_requester=self.opened.answerers.not_requester,
            count=self.opened.answerers.count or None,
        )

    @property
    def votes(self) -> list[agent_pb2.GateStep]:
        """Approvals that count: the last edit, if any, and those behind it."""
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

    def note(self, step: agent_pb2.GateStep) -> None:
        """Keep a step that changes who may answer or what is decided, or that is taken once."""
        if step.step in WIDENING or step.step in (VOTE, ASKED_BACK, REMINDED):
            self.steps.append(step)

    def check_room(self, kind: str) -> None:
        """Raises QueueFull where too much of this kind has happened to the gate."""
        is_vote = kind == VOTE
        if sum((step.step == VOTE) == is_vote for step in self.steps) >= (VOTES_MAX if is_vote else NOTES_MAX):
            what = f"{VOTES_MAX} votes" if is_vote else f"{NOTES_MAX} delegations and questions"
            raise QueueFull(f"this gate has had {what}; answer it")

    async def settle(self) -> None:
        """Return when the log has the last step; raises what the log refused it with."""
        if self.committing is not None:
            await asyncio.shield(self.committing)

    async def catch_up(self) -> None:
        """Return when the log has all that is on its way; raises as `settle`, and Overloaded after CATCH_UP_S."""
        try:
            async with asyncio.timeout(CATCH_UP_S), self.answering:
                await self.settle()
        except TimeoutError:
            raise Overloaded("the gate's last step is on its way to the log; try again") from None

    def begin(self, call: Call | None) -> None:
        if call is not None and not self.call.done():
            self.call.set_result(call)

    async def wait_for_call(self) -> Call:
        """Raises Overloaded where the run has not come to its wait yet, after it was taken over."""
        try:
            async with asyncio.timeout(CALL_WAIT_S):
                return await asyncio.shield(self.call)
        except TimeoutError:
            raise Overloaded("the run is being taken over by another process; try again") from None
