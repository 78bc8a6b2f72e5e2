"""Refuses new work of those who are being erased, in every service of the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog

from headrace.errors import Erasing, HeadraceError
from services.memory.storage.people.records import GOING, StoredErasure
from services.runtime.ending import guard_task

if TYPE_CHECKING:
    from services.memory.storage.engine import Engine
    from services.runtime.auth.identity import Identity

LOOK_S = 1.0
"""How often the records are looked at; erasing begins after three times as long (SETTLES_S of the store)."""

NEW_WORK = frozenset(
    f"/headrace.v1.{service}Service/{method}"
    for service, methods in {
        "Memory": "BeginRun ForkChat Remember UpdateFact PutBlob UpdateChat ShareChat PinMessage EditSummary Compact"
        " UpdateState Revert PutAgentVersion PutAgentDefinition",
        "DataStore": "CheckErasure",
        "Schedule": "CreateSchedule UpdateSchedule TriggerSchedule RotateScheduleSecret",
        "Key": "CreateKey UpdateKey",
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
        self._erasures = engine.erasures
        self._going: tuple[StoredErasure, ...] = ()

    async def look(self) -> None:
        self._going = tuple(found for found in await self._erasures.list_all() if found.state == GOING)

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
        if self._going and who is not None and method in NEW_WORK:
            self.check(who)

    def check(self, who: Identity) -> None:
        """Raise Erasing if the user is being erased."""
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
