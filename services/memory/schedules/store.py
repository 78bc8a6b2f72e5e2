"""The schedules of the current user, and the due schedules of all users."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from headrace.errors import InvalidRequest, NotFound, QuotaExceeded
from services.memory.schedules import posts
from services.memory.schedules.posts import ACCEPTED, DUPLICATE, PAUSED, Posted
from services.memory.schedules.times import check_next, check_times, count_between, find_last, find_next
from services.memory.storage.paging import PAGE_MAX, split_page
from services.memory.storage.records.kind import make_version
from services.memory.storage.records.schedules import (
    FIRINGS_MAX,
    NO_CREDENTIAL,
    OPERATOR,
    SUSPENDED,
    Firing,
    Schedule,
    Trigger,
)
from services.memory.webhooks.forms import make_secret
from services.memory.webhooks.store import KEEP_S_MAX
from services.runtime.auth import identity
from services.runtime.auth.identity import Identity
from services.runtime.clock import now_ms
from services.runtime.randomness import new_uuid
from services.runtime.rpc.field_rules import is_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from services.memory.chats.access import ChatAccess
    from services.memory.keys.suspensions import LivingUsers
    from services.memory.storage.records.agents import StoredAgents
    from services.memory.storage.records.schedules import Schedules

SCHEDULES_MAX = 1000
"""Schedules of a user."""

DUE_MAX = 100
"""Maximum due schedules per response."""

GRACE_MS = 120_000
"""A due time is missed if its run could not begin within this time; restarts take less."""

TRIGGERS_MAX = 200
"""Maximum trigger ids kept to detect repetitions."""

NAME_CHARS = 60
"""Characters of the message used as the default name of a schedule."""

DEFAULT_AGENT = "default"
"""Key of the deployment's default agent."""

KEYS_SHOWN_MAX = 20

STARTED, QUEUED, REFUSED = "started", "queued", "refused"
"""Outcomes: a run has started; the previous time's run is still active; it will be tried again."""

RETRY_MS = 5_000
"""Time after which a queued or refused firing is tried again."""

TIMES = ("cron", "once_at", "time_zone", "paused")
"""Fields that determine the next time."""

_TOKEN = re.compile(r"([0-9]{1,15})\.([0-9a-f-]{36})")

NOT_TRIED: dict[str, Any] = {"queued_at": 0, "retry_at": 0, "refusal": None}
"""Fields about the due time, before it has been tried."""


class ScheduleStore:
    def __init__(
        self,
        schedules: Schedules,
        access: ChatAccess,
        clock: Callable[[], int] = now_ms,
        users: LivingUsers | None = None,
        agents: StoredAgents | None = None,
    ) -> None:
        """`clock` returns Unix milliseconds, the same for all services. `users` knows users with credentials; None: all
        have them. `agents` are those that tenants have stored; None: none."""
        self._schedules = schedules
        self._users = users
        self._access = access
        self._clock = clock
        self._agents = agents
        self._shared_agents: frozenset[str] = frozenset()
        """Keys of the orchestrators' agents, as last reported; empty: unknown, and every key is accepted."""

    async def create(self, schedule: Schedule) -> tuple[Schedule, bool]:
        """Store a schedule, with owner, version and times filled in here; return it, and whether it is new."""
        owner, now = identity.require_identity(), self._clock()
        schedule = replace(
            schedule,
            schedule_id=schedule.schedule_id or new_uuid(),
            tenant=owner.tenant,
            user=owner.user,
            version=make_version(),
            name=schedule.name or " ".join(schedule.message.split())[:NAME_CHARS],
            time_zone=schedule.time_zone or "UTC",
            overlap=schedule.overlap or "skip",
            created_at=now,
            updated_at=now,
            makers=tuple(sorted(owner.makers)),
        )
        if (stored := await self._schedules.find(schedule.schedule_id)) is not None:
            return await self._schedules.keep(_check_same(stored, schedule)), False
        check_times(schedule)
        await self._check_agent(owner.tenant, schedule.agent_key)
        schedule = replace(schedule, next_at=find_next(schedule, now))
        check_next(schedule)
        await self._check_chat(schedule)
        if await self._schedules.count_own(owner) >= SCHEDULES_MAX:
            raise QuotaExceeded(f"{SCHEDULES_MAX} schedules are there already; delete some", limit=str(SCHEDULES_MAX))
        if await self._schedules.put(schedule):
            return schedule, True
        stored = self._schedules.check_kept(await self._schedules.find(schedule.schedule_id))
        # A statement with a lost response is repeated, and then finds its own schedule.
        return await self._schedules.keep(_check_same(stored, schedule)), stored.version == schedule.version

    async def list_own(self, size: int = 0, token: str = "") -> tuple[list[Schedule], str]:
        """Return a page of the user's schedules, and the next page's token; size 0 returns all."""
        size, after = _parse_page(size, token)
        found = await self._schedules.list_own(identity.require_identity(), after, size + 1)
        return split_page(found, size, _get_place)

    async def list_of_tenant(self, user: str, size: int, token: str) -> tuple[list[Schedule], str]:
        """Return a page of schedules of the tenant's users, or of one user, and the next page's token."""
        tenant, (size, after) = identity.require_scope("operate").tenant, _parse_page(size or PAGE_MAX, token)
        if user:
            found = await self._schedules.list_own(Identity(tenant, user), after, size + 1)
        else:
            found = await self._schedules.list_of_tenant(tenant, after, size + 1)
        return split_page(found, size, _get_place)

    async def get(self, schedule_id: str, *, for_operator: bool = False) -> Schedule:
        """Return the user's schedule; with `for_operator` and the scope operate, any of the tenant. Raises NotFound."""
        schedule, caller = await self._schedules.find(schedule_id), identity.require_identity()
        is_operator = for_operator and "operate" in caller.scopes
        if schedule is None or not (schedule.owner == caller or (is_operator and schedule.tenant == caller.tenant)):
            raise _not_found(schedule_id)
        return schedule

    async def hold(self, schedule_id: str, *, is_held: bool) -> Schedule:
        """Hold or release a schedule of any user of the tenant; a held schedule begins no runs."""
        identity.require_scope("operate")

        def change(schedule: Schedule) -> Schedule:
            return replace(schedule, held=OPERATOR if is_held else "")

        return await self._note_hold(await self._change(await self.get(schedule_id, for_operator=True), change))

    async def note_holds(self, tenant: str, user: str) -> None:
        """Update the held state of a user's schedules."""
        for schedule in await self._schedules.list_own(Identity(tenant, user), (0, ""), SCHEDULES_MAX):
            with suppress(NotFound), identity.acting_as(None):  # it may be deleted in the meantime
                await self._note_hold(schedule)

    async def update(self, schedule_id: str, changes: dict[str, Any]) -> Schedule:
        """Change fields by name; setting cron clears once_at and vice versa."""
        if changes.get("cron"):
            changes = {"once_at": 0} | changes
        if changes.get("once_at"):
            changes = {"cron": ""} | changes
        for name in ("agent_key", "message"):
            if changes.get(name) == "":
                raise InvalidRequest.of({"agent_key": "agentKey"}.get(name, name), "must not be empty")

        def change(schedule: Schedule) -> Schedule:
            now = self._clock()
            changed = replace(schedule, **changes, updated_at=now)
            changed = replace(changed, overlap=changed.overlap or "skip", time_zone=changed.time_zone or "UTC")
            if not changed.on_webhook:
                changed = replace(changed, posts=())
            check_times(changed)
            if all(getattr(changed, name) == getattr(schedule, name) for name in TIMES):
                return changed
            changed = replace(changed, next_at=find_next(changed, now), **NOT_TRIED)
            if changed.once_at != schedule.once_at or changed.cron:  # a time that has passed may stay
                check_next(changed)
            return changed

        if "agent_key" in changes:
            await self._check_agent(identity.require_identity().tenant, changes["agent_key"])
        if "chat_id" in changes:
            await self._check_chat(replace(await self.get(schedule_id), chat_id=changes["chat_id"]))
        return await self._change(await self.get(schedule_id), change)

    async def trigger(self, schedule_id: str, request_id: str) -> tuple[Schedule, int]:
        """Request a run outside the schedule's times, once per non-empty `request_id`; return the schedule and the
        run's time."""
        due_at = 0

        def change(schedule: Schedule) -> Schedule:
            nonlocal due_at
            known = next((one.due_at for one in schedule.triggers if request_id and one.request_id == request_id), 0)
            due_at = known or schedule.triggered_at or posts.find_free_time(schedule, self._clock())
            if known:
                return schedule
            named = (Trigger(due_at, request_id),) if request_id else ()
            return replace(schedule, triggered_at=due_at, triggers=(*named, *schedule.triggers)[:TRIGGERS_MAX])

        return await self._change(await self.get(schedule_id), change), due_at

    async def rotate(self, schedule_id: str, keep_s: int) -> tuple[Schedule, str]:
        """Return the schedule with a new secret for posts, and the secret; the previous one stays valid for `keep_s`
        more."""
        if not 0 <= keep_s <= KEEP_S_MAX:
            raise InvalidRequest.of("keepS", f"must be 0 to {KEEP_S_MAX}")
        secret = make_secret()

        def change(schedule: Schedule) -> Schedule:
            return posts.add_secret(schedule, secret, keep_s, self._clock())

        return await self._change(await self.get(schedule_id), change), secret

    async def receive(self, schedule_id: str, posted: Posted) -> str:
        """Store a post to any user's schedule, so that its run begins; return its status.

        Raises:
            Unauthenticated: The post is not authentic.
            InvalidRequest: The payload is not JSON.
            QueueFull: Too many posts wait.
        """
        posts.check_form(posted, self._clock())
        found = await self._schedules.find(schedule_id) if is_uuid(schedule_id) else None
        schedule = posts.check_proof(found, posted, self._clock())
        payload, status = posts.check_payload(posted.payload), ACCEPTED
        is_held = bool((await self._note_hold(schedule)).held)

        def change(stored: Schedule) -> Schedule:
            nonlocal status
            if posted.webhook_id in stored.taken_ids:
                status = DUPLICATE
            elif stored.paused or is_held or not stored.on_webhook:
                status = PAUSED
            else:
                status = ACCEPTED
                return posts.add_post(stored, posted, payload, self._clock())
            return stored

        await self._change(schedule, change)
        return status

    async def delete(self, schedule_id: str) -> None:
        await self.get(schedule_id, for_operator=True)
        await self._schedules.delete(schedule_id)

    async def list_due(self, agent_keys: Iterable[str] = (), *, may_lag: bool = False) -> tuple[list[Schedule], int]:
        """Return the due schedules, and the time of the next one. Times that are too late are stored as missed.

        `agent_keys` are those of the orchestrator's files; without any, the last ones stay known. With `may_lag` the
        newest schedules may be missing.
        """
        self._shared_agents = frozenset(key.casefold() for key in agent_keys) or self._shared_agents
        now = self._clock()
        state = self._schedules.state if may_lag else None
        if state is not None and (not state.next_schedule_at or state.next_schedule_at > now):
            return [], state.next_schedule_at
        due: list[Schedule] = []
        for schedule in await self._schedules.list_due(now, DUE_MAX):
            if not _is_seen(schedule):
                continue
            with suppress(NotFound):  # it was deleted in the meantime
                if (await self._note_hold(schedule)).held:
                    await self.record(schedule.schedule_id, Firing(schedule.due_at, 0, "skipped"))
                elif now - schedule.waits_since <= GRACE_MS:
                    due.append(schedule)
                elif schedule.catch_up and schedule.due_at == schedule.next_at and not schedule.refusal:
                    due.append(await self._pass_times(schedule, find_last(schedule, schedule.next_at, now)))
                else:
                    missed = Firing(schedule.due_at, 0, "missed", failure=schedule.refusal)
                    await self.record(schedule.schedule_id, missed)
        if len(due) == DUE_MAX:
            return due, now
        return due, await self._schedules.find_next_start(now)

    async def _check_agent(self, tenant: str, key: str) -> None:
        """Raise NotFound if neither the orchestrators nor the tenant have the agent."""
        known = self._shared_agents
        if not known or key.casefold() in known or key == DEFAULT_AGENT:
            return
        own = None if self._agents is None else await self._agents.find_agent(tenant, key)
        if own is None or not own.definition:
            shown = ", ".join(sorted(known)[:KEYS_SHOWN_MAX])
            raise NotFound(f"no agent in force has the key {key!r}; known keys: {shown}", field="agentKey")

    async def record(self, schedule_id: str, firing: Firing) -> Schedule:
        """Store the outcome of the time `firing.due_at`, and advance to the next one."""
        found = await self._schedules.find(schedule_id)
        if found is None or not _is_seen(found):
            raise _not_found(schedule_id)

        def change(schedule: Schedule) -> Schedule:
            now = self._clock()
            if any(known.due_at == firing.due_at for known in schedule.firings):
                return _correct(schedule, firing)
            if firing.outcome in (QUEUED, REFUSED):
                if firing.due_at != schedule.due_at:
                    return schedule  # another one became due before it, or a pause began: its turn comes later
                queued_at = now if firing.outcome == QUEUED else schedule.queued_at
                return replace(schedule, queued_at=queued_at, retry_at=now + RETRY_MS, refusal=firing.failure)
            changed, passed = schedule, 0
            if firing.due_at == schedule.due_at:
                changed = replace(schedule, **NOT_TRIED)
            post = schedule.find_post(firing.due_at)
            if post is not None:
                changed = replace(changed, posts=tuple(one for one in changed.posts if one.due_at != firing.due_at))
            elif firing.due_at == schedule.triggered_at:
                changed = replace(changed, triggered_at=0)
            elif firing.due_at == schedule.next_at:
                changed = replace(changed, next_at=find_next(schedule, max(now, firing.due_at)))
                passed = count_between(schedule, firing.due_at, now)
            elif firing.outcome != STARTED or _is_forgotten(schedule, firing.due_at):
                return schedule  # its user has changed the times, or its run was taken over long afterwards
            if changed.posts:
                # a firing that waited for this one gets the full grace period
                changed = replace(changed, queued_at=now)
            recorded = replace(firing, recorded_at=now, passed=passed, webhook_id=post.webhook_id if post else "")
            firings = (recorded, *schedule.firings)[:FIRINGS_MAX]
            return replace(changed, firings=firings, last_run_id=firing.run_id or schedule.last_run_id)

        return await self._change(found, change)

    async def _pass_times(self, schedule: Schedule, last: int) -> Schedule:
        """Advance to the time `last`; if an earlier one was next, store it as missed."""

        def change(stored: Schedule) -> Schedule:
            if stored.next_at != schedule.next_at:
                return stored
            # The service that begins it gets the full grace period from now on.
            changed = replace(stored, queued_at=self._clock())
            if last == stored.next_at:
                return changed
            passed = count_between(stored, stored.next_at, last) - 1
            missed = Firing(stored.next_at, self._clock(), "missed", passed=passed)
            return replace(changed, next_at=last, firings=(missed, *stored.firings)[:FIRINGS_MAX])

        return await self._change(schedule, change)

    async def _note_hold(self, schedule: Schedule) -> Schedule:
        """Return the schedule with its held state updated: held if its user is suspended or has no credentials left."""
        if self._users is None or schedule.held == OPERATOR:
            return schedule
        if await self._users.is_suspended(schedule.tenant, schedule.user):
            held = SUSPENDED
        else:
            has_gone = partial(self._users.has_gone, schedule.tenant, schedule.user)
            is_back = partial(self._users.is_back, schedule.tenant, schedule.user)
            is_held = not await is_back() if schedule.held == NO_CREDENTIAL else await has_gone()
            held = NO_CREDENTIAL if is_held else ""
        if held == schedule.held:
            return schedule
        return await self._change(
            schedule, lambda stored: stored if stored.held == OPERATOR else replace(stored, held=held)
        )

    async def _change(self, schedule: Schedule, change: Callable[[Schedule], Schedule]) -> Schedule:
        who = identity.get_identity()

        def note_makers(stored: Schedule) -> Schedule:
            changed = change(stored)
            if who is None or who.makers <= {*stored.makers}:
                return changed
            return replace(changed, makers=tuple(sorted({*stored.makers, *who.makers})))

        changed = await self._schedules.change(schedule, note_makers)
        if changed is None:
            raise _not_found(schedule.schedule_id)
        return changed

    async def _check_chat(self, schedule: Schedule) -> None:
        if schedule.chat_id and not await self._access.may_use_id(schedule.chat_id):
            raise NotFound(f"chat {schedule.chat_id} does not exist", chatId=schedule.chat_id)


def _parse_page(size: int, token: str) -> tuple[int, tuple[int, str]]:
    if not 0 <= size <= PAGE_MAX:
        raise InvalidRequest.of("pageSize", f"must be 1 to {PAGE_MAX}, or 0 for all")
    match = _TOKEN.fullmatch(token)
    if token and match is None:
        raise InvalidRequest.of("pageToken", "must be the nextPageToken of an earlier answer")
    return size or SCHEDULES_MAX, (int(match[1]), match[2]) if match else (0, "")


def _get_place(schedule: Schedule) -> tuple[int, str]:
    return schedule.created_at, schedule.schedule_id


def _is_forgotten(schedule: Schedule, due_at: int) -> bool:
    """Return whether so many firings have followed that this one's outcome is no longer stored."""
    return len(schedule.firings) == FIRINGS_MAX and due_at < schedule.firings[-1].due_at


def _correct(schedule: Schedule, firing: Firing) -> Schedule:
    """Return the schedule with a started run added to a firing recorded without one.

    The service that skipped it found the chat busy, and another, a moment later, did not.
    """
    at = next(number for number, known in enumerate(schedule.firings) if known.due_at == firing.due_at)
    known = schedule.firings[at]
    if firing.outcome != STARTED or known.outcome == STARTED:
        return schedule
    started = replace(known, outcome=STARTED, run_id=firing.run_id, chat_id=firing.chat_id, failure=None)
    firings = (*schedule.firings[:at], started, *schedule.firings[at + 1 :])
    return replace(schedule, firings=firings, last_run_id=schedule.last_run_id if at else firing.run_id)


def _is_seen(schedule: Schedule) -> bool:
    """Return whether the caller may begin the schedule's runs: its user, or a service on its own account."""
    return identity.is_own_account() or schedule.owner == identity.require_identity()


def _check_same(stored: Schedule, schedule: Schedule) -> Schedule:
    """Return the stored schedule if the same request created it."""
    asked = replace(
        schedule,
        **{
            name: getattr(stored, name)
            for name in (
                "version",
                "created_at",
                "updated_at",
                "next_at",
                *NOT_TRIED,
                "triggered_at",
                "last_run_id",
                "firings",
                "secrets",
                "posts",
                "taken_ids",
                "taken_times",
                "forgotten_at",
                "triggers",
                "makers",
                "held",
            )
        },
    )
    if asked != stored:
        raise InvalidRequest.of("scheduleId", "must be new, or that of the same schedule")
    return stored


def _not_found(schedule_id: str) -> NotFound:
    return NotFound(f"schedule {schedule_id} does not exist", scheduleId=schedule_id)
