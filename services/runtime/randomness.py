"""Random numbers and ids: the system's, or from the source that a context has (`RANDOM.set`)."""

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
    """Return a text of twice as many hex digits."""
    return RANDOM.get().randbytes(size_bytes).hex()


def choose_uniform(low: float, high: float) -> float:
    """Return a number of the range, each as likely."""
    return RANDOM.get().uniform(low, high)
