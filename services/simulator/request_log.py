"""Log of requests and their ends, for tests, and the number of tokens that a provider would have read from its cache.

A provider with automatic prompt caching, such as OpenAI (2026-11), reads prefixes of 1,024 tokens and more that an
earlier request shared, in steps of 128 tokens.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import orjson

from services.runtime.newest import NewestDict

REQUESTS_MAX = 1000
"""Requests kept; the oldest are dropped first."""

CHARS_PER_TOKEN = 4
STEP = 128 * CHARS_PER_TOKEN
CHARS_MIN = 1024 * CHARS_PER_TOKEN

PREFIXES_MAX = 100_000
"""Prefixes kept, some 10 MB."""


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
    """Monotonic time; None while the request is running."""


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


class PrefixCache:
    def __init__(self) -> None:
        self._known: NewestDict[bytes, None] = NewestDict(PREFIXES_MAX)

    def measure(self, body: dict[str, Any], prompt_tokens: int) -> int:
        """Return the tokens at the request's beginning that an earlier request shared, and store its prefixes."""
        parts = [orjson.dumps(body.get(name)) for name in ("model", "system", "tools")]
        text = b"\n".join([*parts, *map(orjson.dumps, body.get("messages", []))])
        if len(text) < CHARS_MIN:
            return 0
        digest, found, at = blake2b(digest_size=16), 0, 0
        for end in range(STEP, len(text) + 1, STEP):
            digest.update(text[at:end])
            at, key = end, digest.digest()
            if key in self._known and end >= CHARS_MIN:
                found = end
            self._known[key] = None
        return int(prompt_tokens * found / len(text)) // 128 * 128
