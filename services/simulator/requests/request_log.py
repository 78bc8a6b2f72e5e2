"""The log of requests and their ends, for tests."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

REQUESTS_MAX = 1000
"""Requests kept; the oldest are dropped first."""


@dataclass(slots=True)
class RecordedRequest:
    """One request, updated by the server until it ends."""

    path: str

    headers: dict[str, str]
    """Headers by lower-case name."""

    body: Any
    """Decoded JSON; None when it was none."""

    status: int = 0
    """HTTP status of the answer; 0 before it."""

    closed_by_client: bool = False
    """Whether the client left early."""

    started_at_s: float = field(default_factory=time.monotonic)

    ended_at_s: float | None = None
    """Monotonic time; None while it runs."""


class RequestLog:
    """The last requests, oldest first."""

    def __init__(self) -> None:
        self.requests: deque[RecordedRequest] = deque(maxlen=REQUESTS_MAX)
        self.open_streams = 0
        """Number of requests being answered."""
        self._idle = asyncio.Event()
        self._idle.set()

    async def until_idle(self) -> None:
        await self._idle.wait()

    @contextmanager
    def recording(self, path: str, headers: Mapping[str, str]) -> Generator[RecordedRequest]:
        """Record the request answered inside the block; an exception means that the client left."""
        record = RecordedRequest(path, {name.lower(): value for name, value in headers.items()}, None)
        self.requests.append(record)
        self.open_streams += 1
        self._idle.clear()
        completed = False
        try:
            yield record
            completed = True
        finally:
            record.closed_by_client |= not completed
            record.ended_at_s = time.monotonic()
            self.open_streams -= 1
            if not self.open_streams:
                self._idle.set()
