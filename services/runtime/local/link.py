"""One direction of a connection: what is sent arrives in order, in a later turn of the loop.

Nothing is called in the sender's stack or context, as over a socket.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeAlias

Schedule: TypeAlias = "Callable[[Callable[[], None], Context], object]"
"""Calls back once, in a context: as soon as the loop can, or as late as a network takes."""


class Link:
    __slots__ = ("_context", "_is_due", "_queue", "_schedule")

    def __init__(self, schedule: Schedule, context: Context) -> None:
        """`context` is the receiver's."""
        self._schedule = schedule
        self._context = context
        self._queue: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._is_due = False

    def send(self, receive: Callable[..., None], *args: Any) -> None:
        """Have the receiver call `receive` with `args`, behind all that was sent before."""
        self._queue.append((receive, args))
        if not self._is_due:
            self._is_due = True
            self._schedule(self._deliver, self._context)

    def _deliver(self) -> None:
        queue = self._queue
        try:
            for _ in range(len(queue)):
                receive, args = queue.popleft()
                receive(*args)
        finally:
            # What was sent meanwhile has its own turn, and what a failure has left, too.
            self._is_due = bool(queue)
            if queue:
                self._schedule(self._deliver, self._context)
