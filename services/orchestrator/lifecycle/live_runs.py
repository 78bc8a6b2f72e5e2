"""The live runs of this process, those it holds parked for readers, and the results of starting a query."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TypeAlias

from headrace.errors import Overloaded
from services.orchestrator.lifecycle.admission.fair_use import FairUse
from services.orchestrator.peers import stored_runs
from services.orchestrator.run.run import Run
from services.runtime.auth import identity
from services.runtime.auth.identity import Identity
from services.runtime.capacity import Capacity
from services.runtime.clock import now_ms


@dataclass(frozen=True, slots=True)
class RepeatedQuery:
    run_id: str


@dataclass(frozen=True, slots=True)
class OwnedElsewhere:
    """Another process owns the chat's runs; nothing was started."""

    run_id: str


@dataclass(frozen=True, slots=True)
class ParkedStream:
    """The stream of a run that was parked; the reader continues after `last_seq` wherever the run does."""

    run_id: str
    last_seq: int
    sent: int


StartResult: TypeAlias = Run | RepeatedQuery | OwnedElsewhere


def stopping() -> Overloaded:
    """Return an error that makes the client retry at once, on another replica."""
    return Overloaded("the service is being stopped; try again", retry_after_s=0)


@dataclass(eq=False, slots=True)
class HeldRun:
    id: str
    identity: Identity
    generation: int
    due_at: int
    """Unix milliseconds."""
    held_at: int = field(default_factory=now_ms)
    readers: int = 0
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class HeldRuns:
    def __init__(self) -> None:
        self._by_id: dict[str, HeldRun] = {}
        self._is_closed = False

    def hold(self, run: Run, due_at: int) -> None:
        self._by_id[run.id] = HeldRun(run.id, run.identity, run.log.generation, due_at)

    def has(self, run_id: str) -> bool:
        return run_id in self._by_id

    def all(self) -> list[HeldRun]:
        return list(self._by_id.values())

    async def wait(self, run_id: str) -> None:
        """Return when the run continues on any replica, or has ended. Raises Overloaded when the process stops."""
        if (held := self._by_id.get(run_id)) is not None:
            held.readers += 1
            try:
                await held.woken.wait()
            finally:
                held.readers -= 1
        if self._is_closed:
            raise stopping()

    def let_go(self, held: HeldRun) -> None:
        """Forget the run and wake its readers, unless the run has been held again since."""
        if self._by_id.get(held.id) is held:
            self.wake(held.id)

    def wake(self, run_id: str) -> None:
        if (held := self._by_id.pop(run_id, None)) is not None:
            held.woken.set()

    def close(self) -> None:
        self._is_closed = True
        for held in self.all():
            held.woken.set()


class LiveRuns:
    """The live runs by id and chat. Only the first run of each chat counts against its tenant's share."""

    def __init__(self, capacity: Capacity, fair_use: FairUse) -> None:
        self._capacity = capacity
        self._fair_use = fair_use
        self._by_id: dict[str, Run] = {}
        self._by_chat: dict[str, list[Run]] = {}
        """A chat's runs in order; the first one executes."""
        self._leaving: dict[str, asyncio.Future[None]] = {}
        """Runs being parked, which must not be used any more."""
        self._idle, self._busy = asyncio.Event(), asyncio.Event()
        """`_idle` is set without runs, `_busy` with any."""
        self._idle.set()

    def add(self, run: Run) -> None:
        """Add the run; its turn comes when the chat's earlier runs are removed."""
        self._by_id[run.id] = run
        self._capacity.acquire(run.identity.tenant)
        self._idle.clear()
        self._busy.set()
        queue = self._by_chat.setdefault(run.chat_id, [])
        queue.append(run)
        if queue[0] is run:
            self._fair_use.take(run.identity.tenant)
            run.state.give_turn()

    def remove(self, run: Run) -> None:
        del self._by_id[run.id]
        self.end_leaving(run.id)
        self._capacity.release(run.identity.tenant)
        if not self._by_id:
            self._idle.set()
            self._busy.clear()
        queue = self._by_chat[run.chat_id]
        queue.remove(run)
        if queue:
            queue[0].state.give_turn()
        else:
            del self._by_chat[run.chat_id]
            self._fair_use.give_back(run.identity.tenant)

    def begin_leaving(self, run: Run) -> None:
        self._leaving[run.id] = asyncio.get_running_loop().create_future()

    def end_leaving(self, run_id: str) -> None:
        """Wake the tasks that wait for the run, which has left or stays."""
        if (leaving := self._leaving.pop(run_id, None)) is not None:
            leaving.set_result(None)

    def is_leaving(self, run_id: str) -> bool:
        return run_id in self._leaving

    async def wait_until_left(self, run_id: str) -> None:
        """Return at once if the run is not being parked, else when that has succeeded or failed."""
        while (leaving := self._leaving.get(run_id)) is not None:
            await asyncio.shield(leaving)

    @property
    def has_room(self) -> bool:
        return self._capacity.used < self._capacity.size

    def rest(self, tenant: str, is_resting: bool) -> None:
        """Free the place of a run that waits for people, or take it again."""
        (self._fair_use.give_back if is_resting else self._fair_use.take)(tenant)

    def find(self, run_id: str) -> Run | None:
        """Return a run of the caller, or of the caller's chat."""
        run = self._by_id.get(run_id)
        return run if run is not None and may_end(run, identity.require_identity()) else None

    def find_of_tenant(self, run_id: str) -> Run | None:
        """Return a run of any user of the caller's tenant."""
        run = self._by_id.get(run_id)
        return run if run is not None and run.identity.tenant == identity.require_identity().tenant else None

    def has(self, run_id: str) -> bool:
        return run_id in self._by_id

    def has_chat(self, chat_id: str) -> bool:
        return chat_id in self._by_chat

    def all(self) -> list[Run]:
        return list(self._by_id.values())

    def of_chat(self, chat_id: str) -> list[Run]:
        """List the chat's runs, of all its users; memory decides who may see them. Raises NotFound if the chat is
        another tenant's."""
        runs = self._by_chat.get(chat_id)
        if not runs:
            return []
        tenant = identity.require_identity().tenant
        if any(run.state.is_stored and run.identity.tenant != tenant for run in runs):
            raise stored_runs.make_chat_not_found(chat_id)
        return [run for run in runs if run.identity.tenant == tenant]

    def list_chat(self, run: Run) -> list[Run]:
        """List the live runs of the run's chat, in order."""
        return self._by_chat[run.chat_id]

    def is_first(self, run: Run) -> bool:
        return self._by_chat[run.chat_id][0] is run

    def before(self, run: Run) -> list[Run]:
        return list(takewhile(lambda other: other is not run, self.of_chat(run.chat_id)))

    async def wait_until_busy(self) -> None:
        """Return when there is at least one run."""
        await self._busy.wait()

    async def wait_until_idle(self, within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True


def may_end(run: Run, user: Identity) -> bool:
    """Return whether `user` may end the run: the run's own user, and the chat's owner."""
    return run.identity == user or (run.identity.tenant == user.tenant and run.chat.owner == user.user)
