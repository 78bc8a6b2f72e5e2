"""Stored schedules."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from services.memory.encryption.keyring import NO_KEYS
from services.memory.storage.records.kind import Kind, Records, delete_record
from services.memory.storage.records.webhooks import Secret
from services.runtime.auth.identity import Identity

if TYPE_CHECKING:
    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.sql import StatementRunner

SCHEDULE = "schedule"
"""Kind of the records."""

FIRINGS_MAX = 20
"""Maximum outcomes kept with a schedule."""


class Failure(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    code: str
    message: str = ""
    retriable: bool = False


class Firing(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    due_at: int
    recorded_at: int
    outcome: str
    run_id: str = ""
    chat_id: str = ""
    failure: Failure | None = None
    passed: int = 0
    webhook_id: str = ""
    """The post that caused it."""


class Post(msgspec.Struct, frozen=True, rename="camel"):
    """A post of another system that has no run yet."""

    due_at: int
    """Time of arrival in Unix milliseconds, made unique among the schedule's times."""
    webhook_id: str
    payload: str


class Trigger(msgspec.Struct, frozen=True, rename="camel"):
    due_at: int
    request_id: str


OPERATOR, SUSPENDED, NO_CREDENTIAL = "operator", "suspended", "no_credential"


class Schedule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Times are Unix milliseconds, 0 for none."""

    schedule_id: str
    tenant: str
    user: str
    version: int
    """Changes with each write, so that a writer that read an older one is refused."""
    agent_key: str
    message: str
    created_at: int
    updated_at: int
    name: str = ""
    cron: str = ""
    time_zone: str = ""
    once_at: int = 0
    jitter_s: int = 0
    chat_id: str = ""
    overlap: str = ""
    catch_up: bool = False
    paused: bool = False
    next_at: int = 0
    queued_at: int = 0
    """When the due time was last queued because the previous time's run was still active."""
    retry_at: int = 0
    """The due time is not tried again before this."""
    refusal: Failure | None = None
    """Why the due time could not begin when it was last tried."""
    triggered_at: int = 0
    last_run_id: str = ""
    firings: tuple[Firing, ...] = ()
    """The newest first."""
    on_webhook: bool = False
    secrets: tuple[Secret, ...] = ()
    """Secrets with which posts are signed, newest first."""
    posts: tuple[Post, ...] = ()
    """The oldest first."""
    taken_ids: tuple[str, ...] = ()
    """Ids of the last accepted posts, latest signature first."""
    taken_times: tuple[int, ...] = ()
    """Their signature times in Unix seconds; shorter if an earlier version accepted the last of them."""
    forgotten_at: int = 0
    """Latest signature time of the accepted posts whose ids are no longer kept."""
    triggers: tuple[Trigger, ...] = ()
    """The last triggers with an id, newest first."""
    makers: tuple[str, ...] = ()
    """Users who know a key with which its owner made or changed it, as in Identity."""

    held: str = ""
    """OPERATOR, SUSPENDED or NO_CREDENTIAL while it begins no runs; else empty."""

    @property
    def owner(self) -> Identity:
        return Identity(self.tenant, self.user)

    @property
    def starts_at(self) -> int:
        """When its next run must begin, or be tried again; 0: never."""
        due_at, starts_at = self._find_first()
        return max(starts_at, self.retry_at) if due_at else 0

    @property
    def due_at(self) -> int:
        """The time of the next run: next_at, triggered_at or a post's; 0: none."""
        return self._find_first()[0]

    @property
    def waits_since(self) -> int:
        """Since when the due time's run could have started."""
        return max(self._find_first()[1], self.queued_at)

    def find_post(self, due_at: int) -> Post | None:
        return next((post for post in self.posts if post.due_at == due_at), None)

    def _find_first(self) -> tuple[int, int]:
        """Return the next time, and when its run must begin, including jitter."""
        times = [(post.due_at, post.due_at) for post in self.posts[:1]]
        if self.triggered_at:
            times.append((self.triggered_at, self.triggered_at))
        if self.next_at and not self.paused:
            # The same for all services, and for one that is started again.
            digest = hashlib.sha256(f"{self.schedule_id}:{self.next_at}".encode()).digest()
            times.append((self.next_at, self.next_at + int.from_bytes(digest[:8]) % (self.jitter_s * 1000 + 1)))
        return min(times, key=lambda time: time[1], default=(0, 0))


SCHEDULES = Kind(
    SCHEDULE,
    Schedule,
    "schedules",
    {
        "schedule_id text": lambda schedule: schedule.schedule_id,
        "tenant text": lambda schedule: schedule.tenant,
        "user_name text": lambda schedule: schedule.user,
        "created_at bigint": lambda schedule: schedule.created_at,
        "starts_at bigint": lambda schedule: schedule.starts_at,
    },
    order="created_at, schedule_id",
    indexes=(
        "(tenant, user_name, created_at, schedule_id)",
        "(starts_at) WHERE starts_at > 0",
        "(tenant, created_at, schedule_id)",
    ),
    get_tenant=lambda schedule: schedule.tenant,
    plural="schedules",
    get_user=lambda schedule: schedule.user,
    erase=delete_record,
)

_OWN = "tenant = $1 AND user_name = $2"

_DUE = """
schedule_id IN (SELECT schedule_id FROM (
    SELECT schedule_id, starts_at,
        row_number() OVER (PARTITION BY tenant, user_name ORDER BY starts_at, schedule_id) AS place
    FROM schedules WHERE starts_at > 0 AND starts_at <= $1) AS ranked
ORDER BY place, starts_at, schedule_id LIMIT $2)
"""


class Schedules(Records[Schedule]):
    def __init__(self, sql: StatementRunner, keys: Keyring = NO_KEYS) -> None:
        super().__init__(sql, SCHEDULES, keys)

    async def list_own(self, owner: Identity, after: tuple[int, str], count: int) -> list[Schedule]:
        """List `count` of the user's schedules, oldest first, after the one with this time and id."""
        place = f"{_OWN} AND (created_at, schedule_id) > ($3, $4)"
        return await self.select(place, owner.tenant, owner.user, *after, tail=f"LIMIT {count}")

    async def list_of_tenant(self, tenant: str, after: tuple[int, str], count: int) -> list[Schedule]:
        """Like list_own, of all users, except damaged ones."""
        place = "tenant = $1 AND (created_at, schedule_id) > ($2, $3)"
        return await self.select_readable(place, tenant, *after, tail=f"LIMIT {count}")

    async def count_own(self, owner: Identity) -> int:
        return (await self.fetch("count(*)", _OWN, owner.tenant, owner.user))[0][0]

    async def list_due(self, now: int, count: int) -> list[Schedule]:
        """List schedules that must begin a run by `now`: the first of each user, then the second ones."""
        due = sorted(
            await self.select_readable(_DUE, now, count), key=lambda found: (found.starts_at, found.schedule_id)
        )
        counts = Counter[Identity]()
        ranks: list[int] = []
        for schedule in due:
            ranks.append(counts[schedule.owner])
            counts[schedule.owner] += 1
        return [due[place] for place in sorted(range(len(due)), key=ranks.__getitem__)]

    async def find_next_start(self, now: int) -> int:
        """Return when the first schedule begins after `now`; 0 if none does."""
        return (await self.fetch("coalesce(min(starts_at), 0)", "starts_at > $1 AND starts_at > 0", now))[0][0]
