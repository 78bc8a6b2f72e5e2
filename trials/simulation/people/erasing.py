"""The erasure of a user during other activity, and the user who requests it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.v1 import data_pb2, keys_pb2, memory_pb2, schedule_pb2
from services.runtime.randomness import RANDOM, new_uuid
from trials.simulation.outside.outside import GUEST
from trials.simulation.people.asked import Asked

if TYPE_CHECKING:
    from trials.simulation.people.users import User
    from trials.simulation.plan import Act, PlannedErasure

CALL_S = 20.0

LOOK_S, LOOKS = 2.0, 350
"""Time between checks of an erasure, and their maximum number after the faults: the claim of a dead process
holds for ten minutes at its last step.
"""

FACT_S = (0.5, 4.0)
"""Time between two facts stored by the guest."""


@dataclass
class Erased:
    """The guest's messages, and the state of the erasure."""

    hosted: str
    """Another user's chat in which the guest takes part."""
    own: list[str]
    """The guest's own chats."""
    key_id: str
    """Id of the guest's key."""
    words: list[str] = field(default_factory=list[str])
    """One unique word from each of the guest's inputs."""
    stored: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    """Request time of each of the guest's facts, in seconds of the world, and its creation time by memory's clock."""
    requested_s: float = 0.0
    """Time at which the erasure was known to be stored."""
    run_ids: set[str] = field(default_factory=set[str])
    """The guest's runs."""
    receipt: data_pb2.Erasure | None = None
    """Receipt of the completed erasure."""
    kept_fact: str = ""
    """Text of a fact of the host, which must survive."""
    is_hosted: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether the erasure is done, or was given up."""

    def coin_word(self) -> str:
        self.words.append(f"word{new_uuid().replace('-', '')}")
        return self.words[-1]


async def visit(guest: User, acts: tuple[Act, ...], erased: Erased) -> None:
    """Act like other users, and continue during the erasure."""
    async with asyncio.TaskGroup() as group:
        doing = group.create_task(_do_all(guest, acts, erased))
        await erased.is_over.wait()
        if erased.receipt is None:
            doing.cancel()  # all further requests are refused forever


async def _do_all(guest: User, acts: tuple[Act, ...], erased: Erased) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_store_facts(guest, erased))
        group.create_task(_make_schedule(guest, erased))
        await erased.is_hosted.wait()
        for act in acts:
            await asyncio.sleep(act.pause_s)
            chat_id = erased.own[act.chat - 1] if act.chat else erased.hosted
            word = erased.coin_word()
            asked = Asked(chat_id, new_uuid(), word, act.agent, act.when_busy, act.answer, is_recorded=act.is_recorded)
            try:
                await guest.ask(asked)
            finally:
                erased.run_ids.add(asked.run_id)


async def _store_facts(guest: User, erased: Erased) -> None:
    while not erased.is_over.is_set():
        await _store_fact(guest, erased)
        await asyncio.sleep(RANDOM.get().uniform(*FACT_S))


async def _store_fact(guest: User, erased: Erased) -> None:
    request = memory_pb2.RememberRequest(text=erased.coin_word(), request_id=new_uuid())
    asked_s = 0.0

    async def remember() -> memory_pb2.RememberResponse:
        nonlocal asked_s
        asked_s = asyncio.get_running_loop().time()
        return await guest.memory.Remember(request, timeout=CALL_S)

    if (answer := await guest.try_until_answered(remember)) is not None:
        erased.stored.append((asked_s, answer.fact.created_at))


async def _make_schedule(guest: User, erased: Erased) -> None:
    request = schedule_pb2.CreateScheduleRequest(
        schedule_id=new_uuid(), agent_key="oneshot", message=erased.coin_word(), cron="0 0 1 1 *"
    )
    await guest.try_until_answered(lambda: guest.schedules.CreateSchedule(request, timeout=CALL_S))


async def host_and_erase(host: User, planned: PlannedErasure, erased: Erased, until: asyncio.Event) -> None:
    """Invite the guest to a chat, erase all of the guest's data, and wait for the receipt."""
    await _host(host, erased)
    started = [asyncio.Event() for _ in planned.host_acts]
    async with asyncio.TaskGroup() as group:
        group.create_task(host.do_all(planned.host_acts, [erased.hosted], started))
        group.create_task(_erase(host, planned.at_s, erased, until))


async def _erase(host: User, at_s: float, erased: Erased, until: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    try:
        await asyncio.sleep(max(0.0, at_s - loop.time()))
        request = data_pb2.EraseDataRequest(user=GUEST, reason="ticket 1", request_id=new_uuid())
        answer = await host.try_until_answered(lambda: host.data.EraseData(request, timeout=CALL_S))
        if answer is None:
            host.problems.append(f"the erasure was refused: {host.refusal}")
            return
        erased.requested_s = loop.time()
        host.story.tell(f"{host.name} has {GUEST} erased", count="user erase")
        await _wait_for_receipt(host, answer.erasure.erasure_id, erased, until)
        if erased.receipt is None:
            return
        repeated = await host.try_until_answered(lambda: host.data.EraseData(request, timeout=CALL_S))
        if repeated is None or repeated.erasure != erased.receipt:
            host.problems.append(f"the erasure, asked for once more, is {repeated}, and was {erased.receipt}")
    finally:
        erased.is_over.set()


async def _host(host: User, erased: Erased) -> None:
    erased.kept_fact = f"fact{new_uuid()}"
    fact = memory_pb2.RememberRequest(text=erased.kept_fact, request_id=new_uuid())
    await host.try_until_answered(lambda: host.memory.Remember(fact, timeout=CALL_S))
    key = keys_pb2.CreateKeyRequest(key_id=erased.key_id, name="of the guest", user=GUEST, scopes=["ask"])
    await host.try_until_answered(lambda: host.keys.CreateKey(key, timeout=CALL_S))
    asked = Asked(erased.hosted, new_uuid(), "a question of the host", "oneshot")
    await host.ask(asked)
    share = memory_pb2.ShareChatRequest(chat_id=erased.hosted, participants=[f"user:{GUEST}"], request_id=new_uuid())
    if await host.try_until_answered(lambda: host.memory.ShareChat(share, timeout=CALL_S)) is None:
        host.problems.append(f"the host may not share the chat: {host.refusal}")
    erased.is_hosted.set()


async def _wait_for_receipt(host: User, erasure_id: str, erased: Erased, until: asyncio.Event) -> None:
    get = data_pb2.GetErasureRequest(erasure_id=erasure_id)
    looks, found = 0, None
    while looks < LOOKS:
        found = await host.try_until_answered(lambda: host.data.GetErasure(get, timeout=CALL_S))
        if found is None:
            host.problems.append(f"erasure {erasure_id} is gone: {host.refusal}")
            return
        if found.erasure.state == "done":
            erased.receipt = found.erasure
            host.story.tell(f"{GUEST} is erased")
            return
        looks += until.is_set()
        await asyncio.sleep(LOOK_S)
    host.problems.append(f"erasure {erasure_id} is not done: {found}")
