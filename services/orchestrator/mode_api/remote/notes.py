"""What the log has of a scope's dealings with its remote agent beside the answers, in the order in which it came.

A run that is taken over reads these notes first: what they say was sent is not sent again.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from services.orchestrator.mode_api import kept_values
from services.orchestrator.run.replay.fit import Kept
from services.orchestrator.run.scope import Scope


class Sent(msgspec.Struct, frozen=True):
    """A message that is about to be sent, in the log before it is."""

    message_id: str
    context_id: str = ""
    task_id: str = ""
    """The task that it answers; empty for one that begins a task."""


class Received(msgspec.Struct, frozen=True):
    """The task that has the message, in the log before its result is awaited."""

    task_id: str
    context_id: str


class Asked(msgspec.Struct, frozen=True):
    """What the task asks, in the log before the user is asked."""

    message_id: str = ""
    """Id of the message that says it."""
    at: int = 0
    """When, in Unix nanoseconds; 0 where the agent did not say."""


class Unknown(msgspec.Struct, frozen=True):
    """Whether the message was received cannot be found out; a person is asked."""

    reason: str = ""


N = TypeVar("N", Sent, Received, Asked, Unknown)

NAMES: dict[type, str] = {Sent: "sent", Received: "received", Asked: "asked", Unknown: "unknown"}


class Notes:
    """The notes of one scope, which are read in their order, and then written."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._step = 0

    def recall(self, kind: type[N]) -> N | None:
        """Take the next note if it is of this kind; None: the log has another one, or none."""
        kept = self._scope.recording.kept.get(self._step + 1)
        if kept is None or kept["name"] != NAMES[kind]:
            return None
        self._step += 1
        return msgspec.convert(kept["value"], kind)

    async def keep(self, note: Sent | Received | Asked | Unknown) -> None:
        self._step += 1
        await kept_values.keep(self._scope, self._step, NAMES[type(note)], Kept(msgspec.json.encode(note)))
