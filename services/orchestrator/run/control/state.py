"""The state of a run: its place in its chat, its activity, its stops, and the messages that can still reach it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from headrace.errors import HeadraceError, QueueFull
from headrace.run_states import State
from headrace.v1 import agent_pb2
from services.orchestrator.peers.recorder import Recorder
from services.orchestrator.run.single_waiter_event import SingleWaiterEvent


class ChatPosition:
    __slots__ = ("_cancelled", "checkpoint_id", "is_first", "owner")

    def __init__(self, *, is_first: bool, owner: str = "") -> None:
        self.is_first = is_first
        self.owner = owner
        """The chat's owner; empty until the query is stored."""
        self.checkpoint_id: int | None = None
        """Checkpoint to which reverting the run returns; None until the query is stored."""
        self._cancelled: list[ChatPosition] = []

    def open_chat(self) -> None:
        self.is_first = True

    def store(self, checkpoint_id: int, owner: str) -> None:
        self.checkpoint_id, self.owner = checkpoint_id, owner

    def take_back(self, cancelled: list[ChatPosition]) -> None:
        self._cancelled = cancelled

    def revert(self) -> int | None:
        checkpoints = [position.checkpoint_id for position in self.list_hidden() if position.checkpoint_id is not None]
        if not checkpoints:
            return None
        # At the checkpoint of a run that reverted others, those were still visible, so go back as far as it did.
        self.checkpoint_id = min(checkpoints)
        self._cancelled = []
        return self.checkpoint_id

    def list_hidden(self) -> Iterator[ChatPosition]:
        """Yield the reverted runs, and those that they were to revert."""
        for position in self._cancelled:
            yield position
            yield from position.list_hidden()


class RunState:
    __slots__ = ("_begun", "_on_rest", "_turn", "created_at", "is_stored", "name")

    def __init__(self, created_at: int, *, is_stored: bool, on_rest: Callable[[bool], None]) -> None:
        """Call `on_rest` with True whenever the run waits only for people."""
        self.name = State.QUEUED
        self.created_at = created_at
        """Unix milliseconds."""
        self.is_stored = is_stored
        self._begun = SingleWaiterEvent()
        self._turn = SingleWaiterEvent()
        """Set when the run is the first live run of its chat, or must end."""
        self._on_rest = on_rest

    def store(self) -> None:
        self.is_stored = True

    def give_turn(self) -> None:
        self._turn.set()

    async def wait_for_turn(self) -> None:
        await self._turn.wait()

    def start(self) -> None:
        self.name = State.RUNNING
        self._begun.set()

    async def wait_for_start(self) -> None:
        """Wait until the run may call a model; work ahead of its start must not (docs/decisions/0012)."""
        await self._begun.wait()

    def wait(self) -> None:
        if self.name != State.WAITING:
            self._on_rest(True)
        self.name = State.WAITING

    def resume(self) -> None:
        self.name = State.RUNNING
        self._on_rest(False)

    def end(self, name: State) -> None:
        self.name = name


SETTLING_S = 0.05
"""Time within which siblings finish replaying recorded lines and become live."""


class Stopped(Exception):
    """The run was cancelled with mode after_step."""


class StopControl:
    __slots__ = ("_condition", "_settling", "_state", "error", "is_given_up", "is_live", "mode", "recorder", "work")

    def __init__(self, state: RunState, *, is_live: bool) -> None:
        self._state = state
        self.mode: Literal["", "now", "after_step"] = ""
        self.error: HeadraceError | None = None
        self.is_given_up = False
        self.is_live = is_live
        """Whether the run has passed all that earlier owners did."""
        self.work: asyncio.Task[str] | None = None
        self.recorder: Recorder | None = None
        self._settling: asyncio.TimerHandle | None = None
        self._condition: Callable[[], bool] = lambda: False

    def begin_work(self, work: asyncio.Task[str]) -> None:
        self.work = work

    def cancel(self, mode: Literal["now", "after_step"] = "now") -> None:
        if self.recorder is not None:
            self.recorder.note_received(agent_pb2.CancelRequest(mode=mode))
        if self.mode != "now":
            self.mode = mode
        if mode == "now" and self.is_live:
            self._end_work()

    def cancel_when(self, condition: Callable[[], bool]) -> None:
        """Cancel the work once it is live and `review` finds that the condition holds."""
        self._condition = condition
        self.review()

    def review(self) -> None:
        if self.is_live and self.mode != "now" and self._condition():
            self.cancel()

    def go_live(self) -> None:
        """Let cancels take effect soon; during the replay they would leave calls without results."""
        if not self.is_live and self._settling is None:
            self._settling = asyncio.get_running_loop().call_later(SETTLING_S, self._settle)

    def _settle(self) -> None:
        self.is_live = True
        if self.mode == "now":
            self._end_work()
        self.review()

    def interrupt(self, error: HeadraceError) -> None:
        self.error = error
        self._end_work()

    def expire(self, error: HeadraceError) -> None:
        self.error = self.error or error
        self._end_work()

    def give_up(self) -> None:
        self.is_given_up = True
        self._end_work()

    @property
    def is_stopping(self) -> bool:
        return bool(self.mode) and self.is_live

    @property
    def must_end(self) -> bool:
        return (self.mode == "now" and self.is_live) or self.error is not None or self.is_given_up

    def check(self) -> None:
        if self.is_stopping:
            raise Stopped

    def _end_work(self) -> None:
        self._state.give_turn()
        if self.work is not None:
            self.work.cancel()


UNHEARD_MAX = 32
"""Maximum unheard messages; each may be as large as a query."""


@dataclass(slots=True)
class Steer:
    request_id: str
    text: str
    committed: asyncio.Future[None] | None = None
    """None if the message was already in the log."""

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
        """Queue a message that is being committed.

        Raises:
            QueueFull: Too many messages are unheard.
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
