"""Messages of people that a running model hears before its next turn, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import QueueFull

if TYPE_CHECKING:
    from headrace.v1 import agent_pb2

UNHEARD_MAX = 32
"""Each message may be as large as a query."""


@dataclass(slots=True)
class Steer:
    request_id: str
    text: str
    committed: asyncio.Future[None] | None = None
    """None when the log already had the message."""

    @property
    def is_committed(self) -> bool:
        return self.committed is None or (self.committed.done() and self.committed.exception() is None)

    @property
    def is_refused(self) -> bool:
        return self.committed is not None and self.committed.done() and self.committed.exception() is not None


class SteerQueue:
    def __init__(self, recorded: Iterable[agent_pb2.RequestSteer] = ()) -> None:
        self._unheard = [Steer(steer.request_id, steer.message) for steer in recorded]
        self._known = {steer.request_id: steer for steer in self._unheard}
        self.is_over = False

    def find(self, request_id: str) -> Steer | None:
        return self._known.get(request_id)

    def add(self, steer: Steer) -> None:
        """Queue a message that is on its way to the log.

        Raises:
            QueueFull: Too many are unheard.
        """
        if len(self._unheard) >= UNHEARD_MAX:
            raise QueueFull(f"{UNHEARD_MAX} messages wait for the run's next turn already; try again later")
        self._unheard.append(steer)
        self._known[steer.request_id] = steer

    def next(self) -> Steer | None:
        return self._unheard[0] if self._unheard and self._unheard[0].is_committed else None

    def hear(self) -> None:
        del self._unheard[0]

    def close(self) -> list[Steer]:
        self.is_over = True
        unheard, self._unheard = self._unheard, []
        return [steer for steer in unheard if not steer.is_refused]
