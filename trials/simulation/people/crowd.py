"""All users of a world's services, each in a process."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from trials.simulation.outside.outside import FIRST, GUEST, REQUESTER, SECOND
from trials.simulation.people.asked import find_phases
from trials.simulation.people.editing import edit_chats
from trials.simulation.people.erasing import Erased, host_and_erase, visit
from trials.simulation.people.gates import look_for_gates
from trials.simulation.people.schedules import keep_schedules
from trials.simulation.people.users import User
from trials.simulation.people.watchers import watch_gates
from trials.simulation.people.webhooks import make_webhook
from trials.simulation.plan import USER

if TYPE_CHECKING:
    from trials.simulation.plan import Plan, PlannedErasure
    from trials.simulation.world.world import World

APPROVERS = (FIRST, SECOND)


class Crowd:
    def __init__(self, world: World, plan: Plan) -> None:
        self._world, self._plan = world, plan
        self._ids = Random(f"{plan.seed}/chats")
        self.chat_ids = [self._make_id() for _ in range(plan.chats)]
        self.begun = [[asyncio.Event() for _ in acts] for acts in plan.people]
        """Set when each person's acts start."""
        self.people: list[User] = []
        """Users to be judged."""
        self.watchers: list[User] = []
        self.erased: Erased | None = None
        """State of the erased user; None if no user is erased."""
        self._asking: list[asyncio.Event] = []
        self._beside: list[asyncio.Event] = []
        """Set when the users who ask, and those who stay until then, have finished."""
        self._over = asyncio.Event()
        self._judged = asyncio.Event()
        self._watched: asyncio.Event | None = None

    async def start(self) -> None:
        plan = self._plan
        self._world.story.find_phases = lambda: find_phases(asked for user in self.people for asked in user.asked)
        for number, acts in enumerate(plan.people):
            work = partial(User.do_all, acts=acts, chat_ids=self.chat_ids, started=self.begun[number])
            self._asking.append(self._start_user(str(number), work))
        for number in range(plan.approvers):
            look = partial(look_for_gates, until=self._over)
            self._beside.append(self._start_user(f"approver-{number}", look, APPROVERS[number]))
        if plan.has_webhook:
            await asyncio.sleep(0)
            self._start_user("hooks", make_webhook)
        if plan.has_watcher:
            watch = partial(watch_gates, until=self._judged)
            self._watched = self._start_user("watcher", watch, into=self.watchers)
        if plan.erasure is not None:
            self._start_erasing(plan.erasure)
        if plan.edits:
            edit = partial(edit_chats, planned=plan.edits, chat_ids=self.chat_ids)
            self._beside.append(self._start_user("editor", edit))
        if plan.schedules:
            keep = partial(keep_schedules, planned=plan.schedules, chat_ids=self.chat_ids, until=self._over)
            self._beside.append(self._start_user("scheduler", keep))

    async def wait_until_done(self) -> None:
        for finished in self._asking:
            await finished.wait()
        self._over.set()
        for finished in self._beside:
            await finished.wait()

    async def judge(self, name: str, judge: Callable[[User], Awaitable[None]]) -> None:
        """Run the judge as a user, then let the watchers leave."""
        await self._start(name, judge, REQUESTER, []).wait()
        self._judged.set()
        if self._watched is not None:
            await self._watched.wait()

    def _start_erasing(self, planned: PlannedErasure) -> None:
        hosted, key_id, *own = [self._make_id() for _ in range(4)]
        self.erased = Erased(hosted, own, key_id)
        host = partial(host_and_erase, planned=planned, erased=self.erased, until=self._over)
        guest = partial(visit, acts=planned.acts, erased=self.erased)
        self._beside += [self._start_user("host", host), self._start_user("guest", guest, GUEST, into=[])]

    def _start_user(
        self, name: str, work: Callable[[User], Awaitable[None]], who: str = REQUESTER, into: list[User] | None = None
    ) -> asyncio.Event:
        return self._start(f"{USER}-{name}", work, who, self.people if into is None else into)

    def _start(self, name: str, work: Callable[[User], Awaitable[None]], who: str, into: list[User]) -> asyncio.Event:
        """Start a user's process, and add the user to `into`; return an event that is set when its work is done."""
        world, finished = self._world, asyncio.Event()

        async def main() -> None:
            async with User(name, who, (world.orchestrator_address, world.memory_address), world) as user:
                into.append(user)
                await work(user)
            finished.set()

        world.spawn(name, main)
        return finished

    def _make_id(self) -> str:
        return str(uuid.UUID(bytes=self._ids.randbytes(16), version=4))
