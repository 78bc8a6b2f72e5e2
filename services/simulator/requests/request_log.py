"""The log of requests and their ends, for tests to read."""

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
"""Kept in memory; the oldest are dropped first."""


@dataclass(slots=True)
class RecordedRequest:
    """One request to a model, written by the server until the request ends."""

    path: str

    headers: dict[str, str]
    """Names in lower case."""

    body: Any
    """Decoded JSON; None when it was none."""

    status: int = 0
    """The answer's HTTP status; 0 before it."""

    closed_by_client: bool = False
    """Whether the client left before the answer was complete."""

    started_at_s: float = field(default_factory=time.monotonic)

    ended_at_s: float | None = None
    """On the same monotonic clock; None while it runs."""


class RequestLog:
    """The last requests, oldest first."""

    def __init__(self) -> None:
        self.requests: deque[RecordedRequest] = deque(maxlen=REQUESTS_MAX)
        self.open_streams = 0
        """Requests that are being answered."""
        self._idle = asyncio.Event()
        self._idle.set()

    async def until_idle(self) -> None:
        """Wait until no request is being answered."""
        await self._idle.wait()

    @contextmanager
    def recording(self, path: str, headers: Mapping[str, str]) -> Generator[RecordedRequest]:
        """Record the request answered inside the block; a block left by an exception was closed by the client."""
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
