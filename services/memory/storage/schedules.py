"""Schedules as they are stored: one JSON object each."""

from __future__ import annotations

import hashlib

import msgspec

from services.runtime.auth.identity import Identity

FIRINGS_MAX = 20
"""Outcomes that are kept with a schedule."""


class Failure(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    code: str
    message: str = ""
    retriable: bool = False


class Firing(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    due_at: int
    recorded_at: int
    outcome: str
    run_id: str = ""
    chat_id: str = ""
    failure: Failure | None = None
    passed: int = 0


class Schedule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Times are Unix milliseconds, 0 for none."""

    schedule_id: str
    tenant: str
    user: str
    version: int
    """Number of changes, which fences those that read an older one."""
    agent_key: str
    message: str
    created_at: int
    updated_at: int
    name: str = ""
    cron: str = ""
    time_zone: str = ""
    once_at: int = 0
    jitter_s: int = 0
    chat_id: str = ""
    overlap: str = ""
    catch_up: bool = False
    paused: bool = False
    next_at: int = 0
    queued_at: int = 0
    """Since when the next time waits for the run of the last one."""
    triggered_at: int = 0
    last_run_id: str = ""
    firings: tuple[Firing, ...] = ()
    """The newest first."""

    @property
    def owner(self) -> Identity:
        return Identity(self.tenant, self.user)

    @property
    def starts_at(self) -> int:
        """When its next run is to begin, jitter included; 0: never."""
        if self.triggered_at:
            return self.triggered_at
        return 0 if self.paused or not self.next_at else self.next_at + self._measure_jitter_ms()

    @property
    def due_at(self) -> int:
        """The time that is next, as its firing is recorded."""
        return self.triggered_at or self.next_at

    def _measure_jitter_ms(self) -> int:
        # The same for all services, and for one that is started again.
        digest = hashlib.sha256(f"{self.schedule_id}:{self.next_at}".encode()).digest()
        return int.from_bytes(digest[:8]) % (self.jitter_s * 1000 + 1)


_DECODER = msgspec.json.Decoder(Schedule)


def encode_schedule(schedule: Schedule) -> bytes:
    return msgspec.json.encode(schedule) + b"\n"


def decode_schedule(data: bytes) -> Schedule:
    """Raises msgspec.DecodeError if it is none."""
    return _DECODER.decode(data)
