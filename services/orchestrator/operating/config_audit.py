"""Configuration that is taken or refused, told to the audit log: what a start finds, and each change after it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

import structlog

from headrace.errors import HeadraceError
from services.runtime.files.refused_files import Refusal, collecting_refusals
from services.runtime.rpc.audit_records import AuditRecords

Noting: TypeAlias = Callable[[str, Callable[[], None]], Callable[[], None]]
"""Adds a note to what reads a part of the configuration."""

WAITING_MAX = 1_000
"""Events that wait for memory; the oldest give way."""

RETRY_S = 1.0

PROBLEM_CHARS_MAX = 500

log = structlog.get_logger()


class ConfigAudit:
    """What has been read and is not told yet; `run_records` is its task."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[str, dict[str, str]]] = deque(maxlen=WAITING_MAX)
        self._refused: dict[str, set[Refusal]] = {}

    def noting(self, name: str, read: Callable[[], None]) -> Callable[[], None]:
        """Return `read`, which reads the part `name` of the configuration, with a note of what has come of it."""

        def read_and_note() -> None:
            with collecting_refusals() as refusals:
                read()
            self._note(name, set(refusals))

        return read_and_note

    async def run_records(self, audit: AuditRecords) -> None:
        """Tell what is noted, in order; until cancelled."""
        while True:
            while self._waiting:
                event, details = self._waiting[0]
                try:
                    await audit.record(event, None, **details)
                except HeadraceError as error:
                    log.warning("configuration not recorded", reason=error.reason)
                    break
                self._waiting.popleft()
            await asyncio.sleep(RETRY_S)

    def _note(self, name: str, refused: set[Refusal]) -> None:
        # What was refused before, and is so still, was told then.
        for refusal in sorted(refused - self._refused.get(name, set()), key=lambda refusal: refusal.file):
            details = {"part": name, "file": refusal.file, "problem": refusal.problem[:PROBLEM_CHARS_MAX]}
            self._waiting.append(("config.refused", details))
        if not refused:
            self._waiting.append(("config.taken", {"part": name}))
        self._refused[name] = refused
