"""What people tell a run on its way: its model hears it before the run's next turn, in the order in which it came."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import QueueFull

if TYPE_CHECKING:
    from headrace.v1 import agent_pb2

UNHEARD_MAX = 32
"""Messages that wait for a turn; each may be as large as a query."""


@dataclass(slots=True)
class Steer:
    """One message."""

    request_id: str
    text: str
    committed: asyncio.Future[None] | None = None
    """Done when it is in the log; None: it was there before."""

    @property
    def is_committed(self) -> bool:
        return self.committed is None or (self.committed.done() and self.committed.exception() is None)

    @property
    def is_refused(self) -> bool:
        """Whether the log did not take it."""
        return self.committed is not None and self.committed.done() and self.committed.exception() is not None


class SteerQueue:
    """The messages of one run."""

    def __init__(self, recorded: Iterable[agent_pb2.RequestSteer] = ()) -> None:
        """`recorded` are those that an earlier owner of the run has committed."""
        self._unheard = [Steer(steer.request_id, steer.message) for steer in recorded]
        self._known = {steer.request_id: steer for steer in self._unheard}
        self.is_over = False
        """Whether the run's model hears nothing any more."""

    def find(self, request_id: str) -> Steer | None:
        """The message that was taken with this id."""
        return self._known.get(request_id)

    def add(self, steer: Steer) -> None:
        """Take a message that is on its way to the log. Raises QueueFull."""
        if len(self._unheard) >= UNHEARD_MAX:
            raise QueueFull(f"{UNHEARD_MAX} messages wait for the run's next turn already; try again later")
        self._unheard.append(steer)
        self._known[steer.request_id] = steer

    def next(self) -> Steer | None:
        """The first message that was not heard, when it is in the log."""
        return self._unheard[0] if self._unheard and self._unheard[0].is_committed else None

    def hear(self) -> None:
        """Take off what `next` gave."""
        del self._unheard[0]

    def close(self) -> list[Steer]:
        """Take no more; what was not heard."""
        self.is_over = True
        unheard, self._unheard = self._unheard, []
        return [steer for steer in unheard if not steer.is_refused]
