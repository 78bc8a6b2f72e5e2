"""Reports accepted and refused configuration to the audit log, at start and on each change."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import structlog

from headrace.errors import HeadraceError
from services.runtime.auth.audit_records import AuditRecords
from services.runtime.files.refused_files import Refusal, collecting_refusals

WAITING_MAX = 1_000
"""Maximum queued events; the oldest are dropped."""

RETRY_S = 1.0

PROBLEM_CHARS_MAX = 500

log = structlog.get_logger()


def read_collecting(read: Callable[[], None]) -> frozenset[Refusal]:
    """Call `read`, which reads a part of the configuration, and return its refused files."""
    with collecting_refusals() as refusals:
        read()
    return frozenset(refusals)


class ConfigAudit:
    """Events not yet recorded; `run_records` must run as a task."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[str, dict[str, str]]] = deque(maxlen=WAITING_MAX)
        self._noted = asyncio.Event()
        self._refused: dict[str, frozenset[Refusal]] = {}

    def note(self, part: str, refused: frozenset[Refusal]) -> None:
        """Queue the outcome of reading a part of the configuration; call it on the event loop."""
        # Files that were refused before have been reported already.
        for refusal in sorted(refused - self._refused.get(part, frozenset()), key=lambda refusal: refusal.file):
            details = {"part": part, "file": refusal.file, "problem": refusal.problem[:PROBLEM_CHARS_MAX]}
            self._waiting.append(("config.refused", details))
        if not refused:
            self._waiting.append(("config.taken", {"part": part}))
        self._refused[part] = refused
        self._noted.set()

    async def run_records(self, audit: AuditRecords) -> None:
        """Record the queued events in order, until cancelled."""
        while True:
            await self._noted.wait()
            self._noted.clear()
            while self._waiting:
                event, details = self._waiting.popleft()
                try:
                    await audit.record(event, None, **details)
                except HeadraceError as error:
                    log.warning("configuration not recorded", reason=error.reason)
                    if len(self._waiting) < WAITING_MAX:
                        self._waiting.appendleft((event, details))
                    await asyncio.sleep(RETRY_S)
