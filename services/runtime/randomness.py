"""Random numbers and ids: the system's, or from the source that a context has (`RANDOM.set`)."""

from __future__ import annotations

import uuid
from contextvars import ContextVar
from random import Random, SystemRandom

RANDOM: ContextVar[Random] = ContextVar("RANDOM", default=SystemRandom())  # noqa: B039 - one for the process


def new_uuid() -> str:
    """Return a new UUID of version 4."""
    return str(uuid.UUID(bytes=RANDOM.get().randbytes(16), version=4))


def new_hex(size_bytes: int) -> str:
    """Return a text of twice as many hex digits."""
    return RANDOM.get().randbytes(size_bytes).hex()


def choose_uniform(low: float, high: float) -> float:
    """Return a number of the range, each as likely."""
    return RANDOM.get().uniform(low, high)
