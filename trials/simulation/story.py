"""The story of a simulated world: lines for people, and a hash of all messages between processes."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random

from services.runtime.calls.metadata import Status

SIZED = frozenset((bytes, list))
"""Types of messages and headers."""

SHAKEN_BYTES_MAX, SHAKEN_MAX = 480, 1000
"""Largest size that Python allocates from its own pools, and the number of objects kept."""


class Story:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._hash = hashlib.blake2b(digest_size=8)
        self.lines: list[str] = []
        self.traced: list[str] | None = None
        """All hashed text, when a caller looks for the first difference of two runs."""
        self.is_exact = False
        """Whether messages are hashed; otherwise only their sizes are, which is faster."""
        self.shaken: list[bytes] | None = None
        """Objects that are allocated and freed with each traced message; None: there are none."""
        self._shakes = Random()
        self.counts: Counter[str] = Counter()
        """Number of occurrences by kind."""
        self.bites: Counter[tuple[str, str, str]] = Counter()
        """Number of effective faults by kind, service and phase of each open run."""
        self.find_phases: Callable[[], list[str]] = lambda: ["idle"]
        self._waiting: dict[str, list[asyncio.Event]] = {}
        """Events of those who wait for a phase of a run."""

    def tell(self, what: str, *, count: str = "") -> None:
        """Add a line for people; `count` names the kind under which it is counted."""
        line = f"{self._loop.time():10.6f}  {what}"
        self.lines.append(line)
        self._add(line)
        if count:
            self.counts[count] += 1

    def bite(self, kind: str, process: str) -> None:
        """Count a fault that has had an effect."""
        for phase in self.find_phases():
            self.bites[kind, process.partition("-")[0], phase] += 1

    def enter_phase(self, phase: str) -> None:
        """Wake the tasks that wait for the phase."""
        for waiting in self._waiting.pop(phase, ()):
            waiting.set()

    async def wait_for_phase(self, phase: str, within_s: float) -> None:
        """Return when a run enters the phase, or when the time is over."""
        entered = asyncio.Event()
        self._waiting.setdefault(phase, []).append(entered)
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await entered.wait()

    def trace(self, where: str, what: str, values: Sequence[object]) -> None:
        """Hash a message between processes."""
        shape = _shape if self.is_exact else _measure
        self._add(f"{self._loop.time():.9f} {where} {what} {[*map(shape, values)]}")
        if self.shaken is not None:
            self._shake(self.shaken)

    def _shake(self, kept: list[bytes]) -> None:
        """Move later objects to other addresses, so that a dependence on addresses shows."""
        for _ in range(self._shakes.randrange(4)):
            kept.append(bytes(self._shakes.randrange(SHAKEN_BYTES_MAX)))
        while len(kept) > SHAKEN_MAX:
            kept.pop(self._shakes.randrange(len(kept)))

    def _add(self, text: str) -> None:
        self._hash.update(text.encode())
        if self.traced is not None:
            self.traced.append(text)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


def _measure(value: object) -> object:
    return len(value) if type(value) in SIZED else _shape(value)  # pyright: ignore[reportArgumentType] - these have one


def _shape(value: object) -> object:
    """Return the part of a value that is the same each time: protobuf writes the entries of a map in any order."""
    if isinstance(value, bytes):
        return bytes(sorted(value))
    if isinstance(value, list):
        headers: list[tuple[bytes, bytes]] = value
        return [(name, len(text) if name.endswith(b"-bin") else text) for name, text in headers]
    if isinstance(value, Status):
        pairs = [(name, len(text) if name.endswith("-bin") else text) for name, text in value.metadata]
        return value.code, value.details, pairs, value.is_refused, value.is_local
    return value
