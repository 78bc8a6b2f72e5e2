"""What has happened in a simulated world: lines for people, and a hash of everything that passed between processes."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random

SIZED = frozenset((bytes, list))
"""Types of what messages and headers are sent as."""

SHAKEN_BYTES_MAX, SHAKEN_MAX = 480, 1000
"""Sizes that come from Python's own pools, and how many of them are kept."""


class Story:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._hash = hashlib.blake2b(digest_size=8)
        self.lines: list[str] = []
        self.traced: list[str] | None = None
        """Everything that is hashed, where somebody looks for the first difference of two runs."""
        self.is_exact = False
        """Whether messages are hashed; else their sizes are, which costs the time of the seeds less."""
        self.shaken: list[bytes] | None = None
        """Objects that come and go with each traced message; None: none do."""
        self._shakes = Random()
        self.counts: Counter[str] = Counter()
        """How often each thing has happened."""
        self.bites: Counter[tuple[str, str, str]] = Counter()
        """How often each kind of fault has hit something, with the service and with what each open run did then."""
        self.find_phases: Callable[[], list[str]] = lambda: ["idle"]
        self._waiting: dict[str, list[asyncio.Event]] = {}
        """Those who wait for a phase of a run."""

    def tell(self, what: str, *, count: str = "") -> None:
        """Add a line for people; `count` names its kind."""
        line = f"{self._loop.time():10.6f}  {what}"
        self.lines.append(line)
        self._add(line)
        if count:
            self.counts[count] += 1

    def bite(self, kind: str, process: str) -> None:
        """Count a fault that has hit something."""
        for phase in self.find_phases():
            self.bites[kind, process.partition("-")[0], phase] += 1

    def enter_phase(self, phase: str) -> None:
        """Wake those who wait for it."""
        for waiting in self._waiting.pop(phase, ()):
            waiting.set()

    async def wait_for_phase(self, phase: str, within_s: float) -> None:
        """Return when a run is in the phase, or when the time is over."""
        entered = asyncio.Event()
        self._waiting.setdefault(phase, []).append(entered)
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await entered.wait()

    def trace(self, where: str, what: str, values: Sequence[object]) -> None:
        """Hash what passes between processes."""
        shape = _shape if self.is_exact else _measure
        self._add(f"{self._loop.time():.9f} {where} {what} {[*map(shape, values)]}")
        if self.shaken is not None:
            self._shake(self.shaken)

    def _shake(self, kept: list[bytes]) -> None:
        """Have later objects elsewhere in memory than without, so that an order by address shows."""
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
    return len(value) if type(value) in SIZED else value  # pyright: ignore[reportArgumentType] - these have one


def _shape(value: object) -> object:
    """Return what of a value is the same each time: protobuf writes the entries of a map in any order."""
    if isinstance(value, bytes):
        return bytes(sorted(value))
    if isinstance(value, list):
        headers: list[tuple[bytes, bytes]] = value
        return [(name, len(text) if name.endswith(b"-bin") else text) for name, text in headers]
    return value
