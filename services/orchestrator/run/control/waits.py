"""Waits for submits by id: the first one wins, and one that comes early is kept.

A submit is committed before its waiter gets it, so `accepted` ones are in the log.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from headrace.errors import QueueFull
from headrace.v1 import agent_pb2
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.control.gate_state import GateState
from services.runtime.clock import now_ms

Claim: TypeAlias = Literal["accepted", "repeated", "duplicate", "expired"]

KEPT_MAX = 32
"""Each may be as large as a message."""


@dataclass(frozen=True, slots=True)
class Submission:
    payload: str
    by: str = ""
    """The authenticated user; empty in logs of earlier versions."""
    credential: str = ""
    """How the user was proven; empty: by nothing."""


@dataclass(slots=True)
class _Wait:
    gate: GateState | None = None
    submission: asyncio.Future[Submission] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    request_id: str = ""
    by: str = ""
    committed: asyncio.Future[None] | None = None
    """The commit of the submit that has claimed it; None where the log had that already."""
    is_claimed: bool = False
    has_begun: bool = False
    has_expired: bool = False
    ending: asyncio.Timeout | None = None
    """When the wait ends without an answer, while it is waited."""
    is_closed: bool = False
    is_passed_over: bool = False
    """Whether its time is over before."""


class Waits:
    """An id stays known until the run ends."""

    def __init__(self) -> None:
        self._waits: dict[str, _Wait] = {}
        self._is_over = False

    def __contains__(self, wait_id: str) -> bool:
        return wait_id in self._waits

    def is_claimed(self, wait_id: str) -> bool:
        return wait_id in self._waits and self._waits[wait_id].is_claimed

    def is_closed(self, wait_id: str) -> bool:
        """Return whether an answer to it has been waited for, to the end."""
        wait = self._waits.get(wait_id)
        return wait is not None and wait.is_closed

    def expect(self, gate: agent_pb2.GateOpen, call: Call | None = None, opened_at: int = 0) -> None:
        """Know a gate; `call` is there once this process waits at it, `opened_at` where another has opened it."""
        wait = self._waits.setdefault(gate.gate_id, _Wait())
        wait.gate = wait.gate or GateState(gate, opened_at or now_ms())
        wait.gate.begin(call)

    def list_open_gates(self) -> list[GateState]:
        """List the gates that this process waits at, and that nobody has answered."""
        waits = [wait for wait in self._waits.values() if not (wait.is_claimed or wait.has_expired)]
        return [wait.gate for wait in waits if wait.gate is not None and wait.gate.call.done()]

    def list_waiting_gates(self) -> list[GateState]:
        """List the gates at which a task of this process waits at the moment, for an answer that is not there yet."""
        waits = [wait for wait in self._waits.values() if wait.ending is not None and not wait.is_claimed]
        return [wait.gate for wait in waits if wait.gate is not None and not wait.is_passed_over]

    def find_gate(self, wait_id: str) -> GateState | None:
        """Return the gate that is, or was, waited at; None for calls that no person answers, or not yet."""
        return self._waits[wait_id].gate if wait_id in self._waits else None

    def claim(self, wait_id: str, request_id: str, by: str = "") -> Claim:
        """Claim a wait for the answer of the user `by`; an empty `request_id` is never `repeated`.

        Raises:
            QueueFull: Too many are kept for waits that have not begun.
        """
        if (claim := self.foresee_claim(wait_id, request_id, by)) != "accepted":
            return claim
        wait = self._waits.get(wait_id) or _Wait()
        kept = sum(other.is_claimed and not other.has_begun for other in self._waits.values())
        if not wait.has_begun and kept >= KEPT_MAX:
            raise QueueFull(f"{KEPT_MAX} submits are kept for waits that have not begun; try again later")
        self._waits[wait_id] = wait
        wait.is_claimed, wait.request_id, wait.by = True, request_id, by
        return "accepted"

    def foresee_claim(self, wait_id: str, request_id: str, by: str = "") -> Claim:
        """Return what `claim` would, and claim nothing."""
        wait = self._waits.get(wait_id) or _Wait()
        if wait.is_claimed:
            # Logs of earlier versions do not say by whom.
            is_same = request_id and request_id == wait.request_id and wait.by in ("", by)
            return "repeated" if is_same else "duplicate"
        return "expired" if wait.has_expired or self._is_over else "accepted"

    def note_commit(self, wait_id: str, committed: asyncio.Future[None]) -> None:
        self._waits[wait_id].committed = committed

    async def wait_for_commit(self, wait_id: str) -> None:
        """Return when the submit that has claimed the wait is in the log; raises what the log refused it with."""
        if (committed := self._waits[wait_id].committed) is not None:
            await asyncio.shield(committed)

    def recall(self, wait_id: str, request_id: str, submission: Submission) -> None:
        wait = self._waits.setdefault(wait_id, _Wait())
        wait.request_id, wait.by = request_id, submission.by
        wait.is_claimed = wait.has_begun = True
        self.fulfil(wait_id, submission)

    def end(self, wait_id: str) -> None:
        self._waits.setdefault(wait_id, _Wait()).has_expired = True

    def pass_over(self, asked_at: int) -> None:
        """End the time of every gate that was open at `asked_at`: nobody has answered it, and nobody can any more."""
        now = asyncio.get_running_loop().time()
        for wait in self._waits.values():
            if wait.gate is not None and wait.gate.opened_at <= asked_at and not wait.is_claimed:
                wait.is_passed_over = True
                if wait.ending is not None:
                    wait.ending.reschedule(now)

    def close(self) -> None:
        self._is_over = True

    def fulfil(self, wait_id: str, submission: Submission) -> None:
        future = self._waits[wait_id].submission
        if not future.done():
            future.set_result(submission)

    async def wait(self, wait_id: str, timeout_s: float) -> Submission | None:
        """Return the submission, or None after `timeout_s`, when nothing is accepted any more."""
        wait = self._waits.setdefault(wait_id, _Wait())
        wait.has_begun = True
        if wait.has_expired:  # for an earlier owner of the run, before its time
            return None
        try:
            async with asyncio.timeout(0 if wait.is_passed_over else timeout_s) as wait.ending:
                # Shielded: the timeout ends this wait, not the future that a claimed submit is still to be put into.
                return await asyncio.shield(wait.submission)
        except TimeoutError:
            if not wait.is_claimed:
                wait.has_expired = True
                return None
        finally:
            wait.ending = None
            wait.is_closed = wait.submission.done()
        # It came in time and is on its way to the disk; whoever commits it ends the run when that fails.
        return await wait.submission
