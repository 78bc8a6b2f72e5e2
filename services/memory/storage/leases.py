"""Ownership of runs: leases that expire by the clock, and generations that fence former owners.

An expired lease still fences: only then may another owner take its run. A lease without an owner belongs to a parked
run: any owner may take the run, and it states when one must.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.errors import ChatBusy, InvalidRequest, NotFound, StaleLease
from services.memory.log.chat_info import RunInfo

TTL_MS_MAX = 10 * 60 * 1000
"""Maximum duration; a longer lease would not show whether its owner is alive."""


@dataclass(frozen=True, slots=True)
class Lease:
    owner: str
    """Empty: never owned, or parked."""
    generation: int
    expires_at: int
    """Unix milliseconds; 0 if released, or never owned. Without an owner: when the run is due."""

    @classmethod
    def start_at(cls, owner: str, generation: int, now: int, ttl_ms: int) -> Lease:
        """Create a lease that begins `now`. Raises InvalidRequest if the duration is out of bounds."""
        if not 0 < ttl_ms <= TTL_MS_MAX:
            raise InvalidRequest.of("ttlMs", f"must be 1 to {TTL_MS_MAX}")
        return cls(owner, generation, now + ttl_ms)

    def release(self, due_at: int) -> Lease:
        """Return the lease as released by its owner, or with its run parked until `due_at`."""
        return replace(self, owner="" if due_at else self.owner, expires_at=due_at)

    def check_free(self, run_id: str, owner: str, now: int) -> None:
        """Raise StaleLease if this lease prevents `owner` from taking the run."""
        if self.owner not in ("", owner) and self.expires_at > now:
            raise StaleLease(f"run {run_id} has an owner; its lease holds", runId=run_id, expiresAt=self.expires_at)


NO_LEASE = Lease("", 0, 0)

DUE_MAX = 200
"""Maximum due parked runs listed at a time; the caller takes them over before it polls again."""


def lease_lost(run_id: str, generation: int) -> StaleLease:
    return StaleLease(f"the lease of run {run_id} with generation {generation} was lost", runId=run_id)


def check_owned(chat_id: str, owned: int) -> None:
    """Raise ChatBusy if runs of an unreadable chat have owners with valid leases."""
    if owned:
        raise ChatBusy(f"{owned} runs of chat {chat_id} have an owner; cancel them, or try again later", chatId=chat_id)


def check_can_own(run: RunInfo | None, chat_id: str, run_id: str) -> RunInfo:
    """Return the run if it can have an owner. Raises NotFound if it does not exist, StaleLease if it has ended."""
    if run is None:
        raise NotFound(f"run {run_id} does not exist in chat {chat_id}", runId=run_id)
    if run.is_ended:
        raise StaleLease(f"run {run_id} has ended and cannot be owned", runId=run_id)
    return run
