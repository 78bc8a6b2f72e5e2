"""Refuses new work of those who are being erased, in every service of the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog

from headrace.errors import Erasing, HeadraceError, Overloaded
from services.memory.storage.records.erasures import GOING, StoredErasure
from services.runtime.clock import monotonic_s
from services.runtime.ending import guard_task

if TYPE_CHECKING:
    from services.memory.storage.engine import Engine
    from services.runtime.auth.identity import Identity

LOOK_S = 1.0
"""How often the records are looked at; erasing begins after three times as long (SETTLES_S of the store)."""

KNOWN_S = 15.0
"""For how long what was seen last is believed while the store cannot be asked: longer than calls wait for it."""

NEW_WORK = frozenset(
    f"/headrace.v1.{service}Service/{method}"
    for service, methods in {
        "Memory": "BeginRun ForkChat Remember UpdateFact PutBlob UpdateChat ShareChat PinMessage EditSummary Compact"
        " UpdateState Revert PutAgentVersion PutAgentDefinition",
        "DataStore": "CheckErasure",
        "Schedule": "CreateSchedule UpdateSchedule TriggerSchedule RotateScheduleSecret",
        "Key": "CreateKey ConfirmKey UpdateKey",
        "Webhook": "CreateWebhook UpdateWebhook PutRunWebhook RotateSecret PingWebhook ReplayDeliveries",
    }.items()
    for method in methods.split()
)
"""RPCs that make something of a user. Append is checked where its lines are known: runs must come to their end. What is
posted to a schedule goes with it, and its run does not begin."""

log = structlog.get_logger()


class Refusals:
    """The erasures that go on, as far as this process knows."""

    def __init__(self, engine: Engine) -> None:
        self._erasures = engine.records.erasures
        self._is_shared = engine.eraser.settles_s > 0
        self._going: tuple[StoredErasure, ...] = ()
        self._looked_s = monotonic_s()
        self._since_s: dict[str, float] = {}
        """Since when each of them is known here."""

    async def look(self) -> None:
        began_s = monotonic_s()
        going = tuple(found for found in await self._erasures.list_all() if found.state == GOING)
        if began_s < self._looked_s:
            return  # somebody has looked meanwhile, and knows more
        self._going, self._looked_s = going, began_s
        now_s = monotonic_s()
        self._since_s = {found.erasure_id: self._since_s.get(found.erasure_id, now_s) for found in self._going}

    def get_age_s(self, erasure: StoredErasure) -> float:
        """Return for how long everything new of its users has been refused here."""
        now_s = monotonic_s()
        return now_s - self._since_s.get(erasure.erasure_id, now_s)

    @asynccontextmanager
    async def following(self) -> AsyncGenerator[Refusals]:
        """Know what others begin, inside the block, from its first moment on."""
        await self.look()
        task = guard_task(asyncio.create_task(self._follow()))
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.wait([task])

    def check_call(self, method: str, who: Identity | None) -> None:
        """Refuse an RPC that would make something of somebody who is being erased. Raises Erasing."""
        if who is not None and method in NEW_WORK:
            self.check(who)

    def check(self, who: Identity) -> None:
        """Raise Erasing if the user is being erased, and Overloaded if nobody can say."""
        if self._is_shared and monotonic_s() - self._looked_s > KNOWN_S:
            message = "the database is away, and with it who is being erased; try again later"
            raise Overloaded(message, retry_after_s=LOOK_S)
        for erasure in self._going:
            if erasure.covers(who.tenant, who.user):
                whose = "user" if erasure.user else "tenant"
                message = f"what is kept of this {whose} is being erased; try again later"
                raise Erasing(message, erasureId=erasure.erasure_id, retry_after_s=LOOK_S)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self.look()
            except HeadraceError as error:
                log.warning("erasures not looked at", reason=error.reason)
