"""Pauses between attempts to connect."""

from __future__ import annotations

import asyncio

from services.runtime.randomness import choose_uniform

BACKOFF_S, BACKOFF_S_MAX = 0.1, 2.0
"""The first and the longest pause; a peer restarts within about a second."""


class Backoff:
    """A channel's pause, which doubles with each failure, with jitter."""

    def __init__(self) -> None:
        self._rest_s = BACKOFF_S
        self._until_s = 0.0

    async def wait_for_turn(self) -> None:
        if (rest_s := self._until_s - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(rest_s)

    def start_rest(self) -> None:
        self._until_s = asyncio.get_running_loop().time() + self._rest_s * choose_uniform(0.8, 1.2)
        self._rest_s = min(self._rest_s * 2, BACKOFF_S_MAX)

    def reset(self) -> None:
        self._rest_s = BACKOFF_S
