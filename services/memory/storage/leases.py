"""Ownership of runs: leases that end by the clock, and generations that fence former owners.

An ended lease still fences: only then may another take its run. A lease without an owner is a parked run's: it keeps
nobody from taking the run, and says when somebody must.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.errors import ChatBusy, InvalidRequest, NotFound, StaleLease
from services.memory.log.chat_info import RunInfo

TTL_MS_MAX = 10 * 60 * 1000
"""A lease that holds longer says nothing about whether its owner is alive."""


@dataclass(frozen=True, slots=True)
class Lease:
    owner: str
    """Empty: never had, or parked."""
    generation: int
    expires_at: int
    """Unix milliseconds; 0 if given up, or never had. Without an owner: when the run is due."""

    @classmethod
    def start_at(cls, owner: str, generation: int, now: int, ttl_ms: int) -> Lease:
        """Make a lease that begins `now`. Raises InvalidRequest if the time is out of bounds."""
        if not 0 < ttl_ms <= TTL_MS_MAX:
            raise InvalidRequest.of("ttlMs", f"must be 1 to {TTL_MS_MAX}")
        return cls(owner, generation, now + ttl_ms)

    def release(self, due_at: int) -> Lease:
        """Make the lease as it is when its owner has given it up, or has parked its run until `due_at`."""
        return replace(self, owner="" if due_at else self.owner, expires_at=due_at)

    def check_free(self, run_id: str, owner: str, now: int) -> None:
        """Raise StaleLease if this lease keeps `owner` from having the run."""
        if self.owner not in ("", owner) and self.expires_at > now:
            raise StaleLease(f"run {run_id} has an owner; its lease holds", runId=run_id, expiresAt=self.expires_at)


NO_LEASE = Lease("", 0, 0)

DUE_MAX = 200
"""Parked runs that are listed at a time when they are due: whoever lists them takes them over before it looks again."""


def lease_lost(run_id: str, generation: int) -> StaleLease:
    return StaleLease(f"the lease of run {run_id} with generation {generation} was lost", runId=run_id)


def check_owned(chat_id: str, owned: int) -> None:
    """Raise ChatBusy where so many runs of a chat that cannot be read have an owner, whose lease holds."""
    if owned:
        raise ChatBusy(f"{owned} runs of chat {chat_id} have an owner; cancel them, or try again later", chatId=chat_id)


def check_can_own(run: RunInfo | None, chat_id: str, run_id: str) -> RunInfo:
    """Return the run if it can have an owner. Raises NotFound if there is none, StaleLease if it has ended."""
    if run is None:
        raise NotFound(f"run {run_id} does not exist in chat {chat_id}", runId=run_id)
    if run.is_ended:
        raise StaleLease(f"run {run_id} has ended; nobody can own it", runId=run_id)
    return run
