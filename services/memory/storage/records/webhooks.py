"""Stored webhooks and their deliveries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from services.memory.storage.records.kind import Kind, Records
from services.memory.storage.where import Place, Where, split_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.sql import Statement, StatementRunner

SCHEDULED, WAITING, DELIVERED, DEAD = "scheduled", "waiting", "delivered", "dead"
"""States of a delivery: its event is in the future; it must be attempted (again); the receiver has it; it was given
up."""

KEPT_MS = 7 * 24 * 3_600_000
"""How long a delivery is kept after its end."""


class Secret(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    text: str
    """`whsec_` and the key in base64."""
    ends_at: int = 0
    """When it stops being used for signing, in Unix milliseconds; 0 for the newest one."""


class Webhook(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Times are Unix milliseconds."""

    webhook_id: str
    tenant: str
    version: int
    """Changes with each write, so that a writer that read an older one is refused."""
    url: str
    secrets: tuple[Secret, ...]
    """The newest first."""
    types: tuple[str, ...]
    """Types of the events that it receives."""
    created_at: int
    updated_at: int
    name: str = ""
    agent_keys: tuple[str, ...] = ()
    """Agents whose events it receives; empty: all."""
    paused: bool = False
    matches_from: int = 0
    """Since when it has had its current filters."""
    is_full: bool = False
    """Whether too many deliveries wait, so that new events are dropped; stored next to the record."""
    run_id: str = ""
    """The only run it receives events of, in A2A's form; empty: an operator's webhook for all runs."""
    config_id: str = ""
    """Its name among the run's webhooks."""
    token: str = ""
    auth_scheme: str = ""
    auth_credentials: str = ""

    @property
    def scope_words(self) -> tuple[str, ...]:
        """The content of its column `agents`: agent keys, or the run."""
        return (make_run_word(self.run_id),) if self.run_id else self.agent_keys

    def list_keys(self, now: int) -> list[str]:
        """Return the secrets used for signing at this time, newest first."""
        return [secret.text for secret in self.secrets if not secret.ends_at or secret.ends_at > now]


RUN_WORD = "run:"
"""Prefix of a run's id in place of agent keys."""


def make_run_word(run_id: str) -> str:
    return f"{RUN_WORD}{run_id}"


@dataclass(frozen=True, slots=True)
class Delivery:
    """A row; its fields are in the order of the columns."""

    webhook_id: str
    event_id: str
    tenant: str
    type: str
    subject: str
    """Deliveries of one subject to one webhook happen one after the other."""
    run_id: str
    gate_id: str
    agent_key: str
    occurred_at: int
    payload: str
    """The body of its requests, the same for all attempts."""
    state: str
    began_at: int
    """Start of its attempts."""
    next_at: int
    """Time of the next attempt; during an attempt, when its process is assumed to be dead."""
    tries: int
    """Number of attempts started, which fences earlier ones."""
    closed_at: int = 0
    status: int = 0
    """HTTP status of the last response; 0 without one."""
    failure: str = ""
    """Why the last attempt failed."""


COLUMNS = ", ".join(Delivery.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class LeasedDelivery:
    """A delivery that only the caller may attempt until the claim expires."""

    webhook: Webhook
    delivery: Delivery


@dataclass(frozen=True, slots=True)
class TryResult:
    """The result of an attempt."""

    state: str
    """DELIVERED, DEAD, or WAITING for another attempt."""
    at: int
    """Time of the next attempt, else now."""
    status: int = 0
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Backlog:
    waiting: int = 0
    dead: int = 0
    oldest_at: int = 0
    """Since when the oldest one has been waiting; 0 without any."""


@dataclass(frozen=True, slots=True)
class DeliveryQuery:
    """A query for a tenant's deliveries; empty fields allow any."""

    tenant: str
    webhook_id: str
    state: str
    size: int
    after: tuple[int, str, str] | None = None
    """Time, event and webhook of the last delivery before the page."""

    def render(self) -> tuple[str, list[Any]]:
        """Return the statement, with numbered marks ($1), and its values: one more row than the page has."""
        where = Where()
        where.add("tenant = {} AND webhook_id = {}", self.tenant, self.webhook_id)
        where.add_filter("state <> 'scheduled'")
        where.add_filters({"state = {}": self.state or None})
        if self.after is not None:
            where.add("(occurred_at, event_id, webhook_id) < ({}, {}, {})", *self.after)
        order = "occurred_at DESC, event_id DESC, webhook_id DESC"
        return where.render_page(COLUMNS, "deliveries", order, self.size), where.values

    def split(self, rows: Sequence[Sequence[Any]]) -> tuple[list[Delivery], Place | None]:
        """Return the page, and the place of the next one."""
        return split_rows(rows, self.size, Delivery, lambda it: (it.occurred_at, it.event_id, it.webhook_id))


IS_OF_RUN = f"substr(agents, 1, {len(RUN_WORD) + 1}) = ',{RUN_WORD}'"

_RUN_ID = f"substr(agents, {len(RUN_WORD) + 2}, length(agents) - {len(RUN_WORD) + 2})"

_FORGET_MISSED = """
DELETE FROM deliveries WHERE webhook_id = $1 AND state = 'scheduled' AND next_at <= $2
    AND EXISTS (SELECT 1 FROM webhooks AS w WHERE w.webhook_id = $1 AND w.is_paused = 1)
"""
"""Deliveries that became due while the webhook was paused."""


def _join_words(words: Sequence[str]) -> str:
    return f",{','.join(words)}," if words else ""


WEBHOOKS = Kind(
    "webhook",
    Webhook,
    "webhooks",
    {
        "webhook_id text": lambda webhook: webhook.webhook_id,
        "tenant text": lambda webhook: webhook.tenant,
        "types text": lambda webhook: _join_words(webhook.types),
        "agents text": lambda webhook: _join_words(webhook.scope_words),
        "is_paused integer": lambda webhook: int(webhook.paused),
        "matches_from bigint": lambda webhook: webhook.matches_from,
        "created_at bigint": lambda webhook: webhook.created_at,
    },
    order="created_at, webhook_id",
    kept={"is_full": "is_full integer"},
    get_tenant=lambda webhook: webhook.tenant,
)


class WebhookRecords(Records[Webhook]):
    def __init__(self, sql: StatementRunner, keys: Keyring) -> None:
        super().__init__(sql, WEBHOOKS, keys)
        self._wake: Callable[[], None] = lambda: None

    def listen(self, wake: Callable[[], None]) -> None:
        """Call `wake` when this process has stored deliveries."""
        self._wake = wake

    def wake(self) -> None:
        self._wake()

    async def list_own(self, tenant: str) -> list[Webhook]:
        """List the tenant's webhooks, oldest first, except those of single runs."""
        return await self.select(f"tenant = $1 AND NOT {IS_OF_RUN}", tenant)

    async def list_of_run(self, tenant: str, run_id: str) -> list[Webhook]:
        """List the webhooks of one run of the tenant, oldest first."""
        return await self.select("tenant = $1 AND agents = $2", tenant, _join_words((make_run_word(run_id),)))

    async def count_of_runs(self, tenant: str) -> int:
        """Count the tenant's webhooks of single runs."""
        return len(await self.fetch("1", f"tenant = $1 AND {IS_OF_RUN}", tenant))

    async def list_ids(self, tenant: str) -> list[tuple[str, str]]:
        """Return the ids of the tenant's webhooks, each with its run, or "" without one; no key is needed."""
        columns = f"webhook_id, CASE WHEN {IS_OF_RUN} THEN {_RUN_ID} ELSE '' END"
        return [(webhook_id, run_id) for webhook_id, run_id in await self.fetch(columns, "tenant = $1", tenant)]

    async def put(self, record: Webhook, before: int = 0) -> bool:
        is_stored = await super().put(record, before)
        self._wake()  # deliveries held by a pause are now due
        return is_stored

    def list_changes_before(self, record: Webhook) -> list[Statement]:
        return [(_FORGET_MISSED, (record.webhook_id, record.updated_at))]

    async def delete(self, record_id: str) -> None:
        """Delete the webhook with its deliveries; no key is needed."""
        tables = ("webhooks", "deliveries")
        await self._sql.run(*((f"DELETE FROM {table} WHERE webhook_id = $1", (record_id,)) for table in tables))

    async def delete_of_runs(self, tenant: str, run_ids: Collection[str]) -> None:
        """Delete the webhooks of runs of the tenant; no key is needed."""
        for webhook_id, run_id in await self.list_ids(tenant):
            if run_id in run_ids:
                await self.delete(webhook_id)
