"""Webhooks and their deliveries, in SQL that both engines accept.

An event becomes a delivery for each matching webhook, in the commit of its line. A claim moves a delivery's next
attempt into the future: if its owner dies, it has lost the claim by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from services.memory.encryption.keyring import NO_KEYS, Keyring
from services.memory.storage.event_rows import RUN_ENDED
from services.memory.storage.paging import PAGE_MAX
from services.memory.storage.records.webhooks import (
    COLUMNS,
    DELIVERED,
    IS_OF_RUN,
    KEPT_MS,
    RUN_WORD,
    WAITING,
    Backlog,
    Delivery,
    LeasedDelivery,
    WebhookRecords,
)
from services.runtime.randomness import choose_uniform

if TYPE_CHECKING:
    from collections import defaultdict
    from collections.abc import Collection

    from services.memory.storage.event_rows import OutsideEvent
    from services.memory.storage.records.webhooks import DeliveryQuery, TryResult
    from services.memory.storage.sql import Row, StatementRunner
    from services.memory.storage.where import Place


WAITING_MAX = 100_000
"""Maximum waiting deliveries of a webhook; beyond it, new events are dropped."""

DEAD_MAX = 10_000
"""Maximum dead letters kept for a webhook: the newest."""

REPLAYS_MAX = 500
"""Maximum deliveries that one transaction replays."""

LIVE = 1 << 62
"""In place of an event's time, for events that later webhooks receive as well."""

MATCHES = f"""
w.tenant = event.tenant AND w.is_paused = 0 AND w.is_full = 0 AND w.matches_from <= event.as_of
AND replace(w.types, ',' || event.type || ',', '') <> w.types
AND (w.agents = '' OR replace(w.agents, ',' || event.agent_key || ',', '') <> w.agents
    OR w.agents = ',{RUN_WORD}' || event.run_id || ',')
"""
"""Whether the webhook `w` receives `event`; lists have commas before, between and after their words."""

EVENT_FIELDS = (
    *("event_id", "tenant", "type", "subject", "run_id", "gate_id", "agent_key", "occurred_at", "payload"),
    *("state", "began_at", "next_at"),
)
"""Columns of a delivery that come from its event."""

DELIVERY_FIELDS = f"webhook_id, place, {', '.join(EVENT_FIELDS)}, tries, closed_at, status, failure"

_COUNTED = frozenset({"occurred_at", "began_at", "next_at", "as_of"})

_DEAD = """
SELECT event_id FROM deliveries WHERE webhook_id = $1 AND state = 'dead' ORDER BY place, event_id LIMIT $2
"""

_DUE = """
SELECT w.webhook_id, w.data, w.is_full FROM webhooks AS w WHERE w.is_paused = 0 AND EXISTS (
    SELECT 1 FROM deliveries AS d WHERE d.webhook_id = w.webhook_id AND d.state = 'waiting' AND d.next_at <= $1)
"""

# A plus before a column keeps SQLite from going through all that are due, where a key finds the few that are meant.
_CLAIM = f"""
UPDATE deliveries SET next_at = $3, tries = tries + 1
WHERE webhook_id = $1 AND state = 'waiting' AND +next_at <= $2 AND event_id IN (
    SELECT head.event_id FROM deliveries AS head
    WHERE head.webhook_id = $1 AND head.state = 'waiting' AND head.next_at <= $2 AND NOT EXISTS (
        SELECT 1 FROM deliveries AS earlier
        WHERE earlier.webhook_id = $1 AND earlier.subject = head.subject AND earlier.state = 'waiting'
            AND (earlier.place, earlier.event_id) < (head.place, head.event_id))
    ORDER BY head.next_at LIMIT $4)
RETURNING {COLUMNS}
"""

_END = """
UPDATE deliveries SET state = $3, closed_at = $4, status = $5, failure = $6
WHERE webhook_id = $1 AND event_id = $2 AND state = 'waiting' {fence} RETURNING 1
"""

_WAKE = "UPDATE deliveries SET next_at = $3 WHERE webhook_id = $1 AND subject = $2 AND state = 'waiting'"

_RETRY = """
UPDATE deliveries SET next_at = $3, status = $4, failure = $5
WHERE webhook_id = $1 AND event_id = $2 AND state = 'waiting' AND tries = $6 RETURNING 1
"""

_POSTPONE = """
UPDATE deliveries SET next_at = $3
WHERE webhook_id = $1 AND subject = $2 AND state = 'waiting' AND +next_at < CAST($3 AS bigint)
"""
"""Later deliveries of the same subject, which must wait for it."""

_NEXT = "SELECT coalesce(min(next_at), 0) FROM deliveries WHERE state IN ('waiting', 'scheduled') AND next_at > $1"

_COUNT = """
SELECT count(CASE WHEN state = 'waiting' THEN 1 END), count(CASE WHEN state = 'dead' THEN 1 END),
    coalesce(min(CASE WHEN state = 'waiting' THEN began_at END), 0)
FROM deliveries WHERE state IN ('waiting', 'dead')
"""

_NOTE_FULL = """
UPDATE webhooks SET is_full = 1 - is_full WHERE is_full <> CASE WHEN (
    SELECT count(*) FROM deliveries AS d WHERE d.webhook_id = webhooks.webhook_id AND d.state = 'waiting'
) >= $1 THEN 1 ELSE 0 END
"""

_FORGET_RUNS = f"""
DELETE FROM webhooks WHERE {IS_OF_RUN} AND EXISTS (
    SELECT 1 FROM deliveries AS d
    WHERE d.webhook_id = webhooks.webhook_id AND d.type = '{RUN_ENDED}' AND d.closed_at > 0 AND d.closed_at <= $1)
"""
"""Webhooks of runs whose end was delivered or given up, so that nothing is left to deliver."""

_FORGET = "DELETE FROM deliveries WHERE closed_at > 0 AND closed_at < $1"

_FORGET_DEAD = """
DELETE FROM deliveries WHERE webhook_id = $1 AND state = 'dead' AND (closed_at, event_id) < (
    SELECT closed_at, event_id FROM deliveries WHERE webhook_id = $1 AND state = 'dead'
    ORDER BY closed_at DESC, event_id DESC LIMIT 1 OFFSET $2)
"""


def make_fan_out(next_place: str) -> str:
    """Return the statement that delivers an event to all matching webhooks.

    Its values are those of EVENT_FIELDS, and the time from which a webhook must have matched.
    """
    names = (*EVENT_FIELDS, "as_of")
    given = (f"CAST(${n} AS {'bigint' if name in _COUNTED else 'text'}) AS {name}" for n, name in enumerate(names, 1))
    return (
        f"INSERT INTO deliveries ({DELIVERY_FIELDS})"
        f" SELECT w.webhook_id, {next_place}, {', '.join(f'event.{name}' for name in EVENT_FIELDS)}, 0, 0, 0, ''"
        f" FROM (SELECT {', '.join(given)}) AS event JOIN webhooks AS w ON {MATCHES}"
        " WHERE true ON CONFLICT DO NOTHING RETURNING 1"
    )


class Webhooks(WebhookRecords):
    """Webhooks, and the deliveries that appends have created for them."""

    def __init__(self, sql: StatementRunner, next_place: str, keys: Keyring = NO_KEYS) -> None:
        """`next_place` is SQL for a number greater than the places of all deliveries."""
        super().__init__(sql, keys)
        marks = ", ".join(f"${n}" for n in range(2, len(EVENT_FIELDS) + 2))
        self._add = (
            f"INSERT INTO deliveries ({DELIVERY_FIELDS}) VALUES ($1, {next_place}, {marks}, 0, 0, 0, '')"
            f" ON CONFLICT DO NOTHING RETURNING {COLUMNS}"
        )
        self._replay = (
            f"UPDATE deliveries SET state = 'waiting', place = {next_place}, began_at = $3, next_at = $3, closed_at = 0"
            f" WHERE webhook_id = $1 AND event_id = $2 AND state IN ('dead', 'delivered') RETURNING 1"
        )
        self._fan_out = make_fan_out(next_place)
        self._come_due = (
            f"UPDATE deliveries SET state = 'waiting', place = {next_place}, began_at = next_at"
            f" WHERE state = 'scheduled' AND +next_at <= $1"
            f" AND EXISTS (SELECT 1 FROM webhooks AS w WHERE w.webhook_id = deliveries.webhook_id AND w.is_paused = 0)"
        )

    async def add_event(self, event: OutsideEvent) -> None:
        """Deliver an event that no line causes to all matching webhooks."""
        if await self._fetch(self._fan_out, *list_values(event), LIVE):
            self._wake()

    async def add_delivery(self, webhook_id: str, event: OutsideEvent) -> Delivery | None:
        """Deliver an event to one webhook, regardless of its filters; None if it already has the event."""
        rows = await self._fetch(self._add, webhook_id, *list_values(event))
        self._wake()
        return Delivery(*rows[0]) if rows else None

    async def list_deliveries(self, query: DeliveryQuery) -> tuple[list[Delivery], Place | None]:
        """Return a page of deliveries, newest first, and the place of the next one."""
        statement, values = query.render()
        return query.split(await self._fetch(statement, *values))

    async def replay(self, webhook_id: str, event_ids: Sequence[str], now: int) -> int:
        """Deliver ended deliveries again, after all waiting ones; without ids all dead letters. Return their number."""
        if event_ids:
            found = await self._sql.run(*((self._replay, [webhook_id, event_id, now]) for event_id in event_ids))
            self._wake()
            return sum(map(len, found))
        count = 0
        while rows := await self._fetch(_DEAD, webhook_id, REPLAYS_MAX):
            # One after the other, because each must come after the one before.
            done = await self._sql.run(*((self._replay, [webhook_id, row[0], now]) for row in rows))
            count += sum(map(len, done))
            if count >= DEAD_MAX:
                break
        self._wake()
        return count

    async def claim(
        self, now: int, until: int, each: int, count: int, busy: Collection[str], left: defaultdict[str, int]
    ) -> list[LeasedDelivery]:
        """Claim due deliveries until a time: at most `count`, with at most `each` per webhook and one per subject.

        Webhooks in `busy` are skipped; `left` limits those of each tenant.
        """
        await self._fetch(self._come_due, now)
        rows = [row for row in await self._fetch(_DUE, now) if row[0] not in busy]
        # Deliveries of a tenant with an unavailable key wait until it is back.
        due = await self.read_each(rows)
        due.sort(key=lambda _: choose_uniform(0, 1))  # none is always the last one
        leased: list[LeasedDelivery] = []
        left = left.copy()
        for webhook in due:
            limit = min(each, count - len(leased), left[webhook.tenant])
            if limit <= 0:
                continue
            rows = await self._fetch(_CLAIM, webhook.webhook_id, now, until, limit)
            leased += [LeasedDelivery(webhook, Delivery(*found)) for found in rows]
            left[webhook.tenant] -= len(rows)
        return leased

    async def find_next(self, now: int) -> int:
        """Return when the first delivery after `now` is due; 0 if there is none."""
        rows = await self._fetch(_NEXT, now)
        return rows[0][0] if rows else 0

    async def record(self, delivery: Delivery, result: TryResult) -> bool:
        """Store the result of an attempt; return False if another process has claimed the delivery since."""
        key, subject = (delivery.webhook_id, delivery.event_id), (delivery.webhook_id, delivery.subject)
        if result.state == WAITING:
            values = (*key, result.at, result.status, result.failure, delivery.tries)
            found, _ = await self._sql.run((_RETRY, values), (_POSTPONE, (*subject, result.at)))
            return bool(found)
        # A completed delivery stays completed, even if another process has claimed it since.
        fence, given = ("", ()) if result.state == DELIVERED else ("AND tries = $7", (delivery.tries,))
        values = (*key, result.state, result.at, result.status, result.failure, *given)
        found, _ = await self._sql.run((_END.format(fence=fence), values), (_WAKE, (*subject, result.at)))
        return bool(found)

    async def count_backlog(self) -> Backlog:
        """Count all webhooks' deliveries, and mark the webhooks that have too many."""
        rows, *_ = await self._sql.run((_COUNT, []), (_NOTE_FULL, [WAITING_MAX]))
        return Backlog(*rows[0]) if rows else Backlog()

    async def forget(self, before: int) -> None:
        """Delete deliveries that ended before a time, and the oldest dead letters beyond their limit."""
        webhooks = await self.fetch("webhook_id")
        await self._sql.run(
            (_FORGET_RUNS, [before + KEPT_MS]),
            (_FORGET, [before]),
            *((_FORGET_DEAD, [row[0], DEAD_MAX - 1]) for row in webhooks),
        )

    async def delete_deliveries(self, tenant: str, run_ids: Collection[str]) -> int:
        """Delete the deliveries of runs' events."""
        wanted, deleted = [*run_ids], 0
        for first in range(0, len(wanted), PAGE_MAX):
            part = wanted[first : first + PAGE_MAX]
            marks = ", ".join(f"${n}" for n in range(2, len(part) + 2))
            delete = f"DELETE FROM deliveries WHERE tenant = $1 AND run_id IN ({marks}) RETURNING 1"
            deleted += len(await self._fetch(delete, tenant, *part))
        return deleted

    async def delete_deliveries_about(self, tenant: str, user: str) -> int:
        """Delete the deliveries that contain the user's name, including those of deleted runs."""
        # As event_rows.make_run_ended writes it, and in no other place.
        member = f'"user":{msgspec.json.encode(user).decode()}'
        delete = "DELETE FROM deliveries WHERE tenant = $1 AND replace(payload, $2, '') <> payload RETURNING 1"
        return len(await self._fetch(delete, tenant, member))

    async def _fetch(self, text: str, *values: Any) -> list[Row]:
        return (await self._sql.run((text, values)))[0]


def list_values(event: OutsideEvent) -> list[Any]:
    """Return the values of EVENT_FIELDS."""
    state, began_at = ("scheduled", event.due_at) if event.due_at else ("waiting", event.committed_at)
    return [*(getattr(event, name) for name in EVENT_FIELDS[:9]), state, began_at, began_at]
