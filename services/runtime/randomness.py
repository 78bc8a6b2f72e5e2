"""Random numbers and ids: from the system, or from a context's own source (`RANDOM.set`)."""

from __future__ import annotations

from contextvars import ContextVar
from random import Random, SystemRandom

RANDOM: ContextVar[Random] = ContextVar("RANDOM", default=SystemRandom())  # noqa: B039 - one for the process


def new_uuid() -> str:
    """Return a new UUID of version 4."""
    # Assembled here, because a run needs nine of them, and uuid.UUID takes twice as long.
    digits = bytearray(RANDOM.get().randbytes(16))
    digits[6] = digits[6] & 0x0F | 0x40  # the version
    digits[8] = digits[8] & 0x3F | 0x80  # the variant of RFC 9562
    text = digits.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def new_hex(size_bytes: int) -> str:
    """Return `size_bytes` random bytes as hex."""
    return RANDOM.get().randbytes(size_bytes).hex()


def choose_uniform(low: float, high: float) -> float:
    """Return a uniformly distributed number of the range."""
    return RANDOM.get().uniform(low, high)
