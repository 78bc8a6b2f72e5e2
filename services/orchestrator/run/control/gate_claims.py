"""Claims of gates: who answers which, and until when, as the lines of the log say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.errors import Claimed, QueueFull
from headrace.v1 import agent_pb2
from services.runtime.clock import now_ms

CLAIMED, RELEASED = "claimed", "released"
"""Steps of a gate."""

LINES_MAX = 10_000
"""Claims and renewals of a run: a page that renews twice a minute has three days."""


@dataclass(frozen=True, slots=True)
class GateClaim:
    user: str
    holder: str
    until: int


class GateClaims:
    """The claims of a run's gates, as the log has them; one that is over is no claim any more."""

    def __init__(self, steps: Iterable[agent_pb2.GateStep] = ()) -> None:
        self._claims: dict[str, GateClaim] = {}
        self._lines = 0
        for step in steps:
            if step.step == CLAIMED:
                self._lines += 1
                self._claims[step.gate_id] = GateClaim(step.by, step.holder, step.until)
            elif step.step == RELEASED:
                self.remove(step.gate_id, step.by, step.holder)

    def find(self, gate_id: str, user: str, holder: str) -> GateClaim | None:
        """Return the claim of this user and client; None where nobody has one.

        Raises:
            Claimed: Another client has one.
        """
        claim = self._claims.get(gate_id)
        if claim is None or claim.until <= now_ms():
            return None
        if (claim.user, claim.holder) != (user, holder):
            left_s = max(0.0, (claim.until - now_ms()) / 1000)
            until = datetime.fromtimestamp(claim.until / 1000, UTC).isoformat(timespec="seconds")
            problem = f"this gate is being answered by {claim.user!r} until {until}, in another client"
            given = {"gateId": gate_id, "claimedBy": claim.user, "until": claim.until}
            raise Claimed(problem, retry_after_s=left_s, **given)
        return claim

    def count_line(self) -> None:
        """Raises QueueFull."""
        if self._lines >= LINES_MAX:
            raise QueueFull(f"this run has been claimed {LINES_MAX} times; its gates are answered without a claim")
        self._lines += 1

    def put(self, gate_id: str, claim: GateClaim) -> None:
        self._claims[gate_id] = claim

    def remove(self, gate_id: str, user: str, holder: str) -> None:
        """Forget this client's claim; another's stays."""
        claim = self._claims.get(gate_id)
        if claim is not None and (claim.user, claim.holder) == (user, holder):
            del self._claims[gate_id]
