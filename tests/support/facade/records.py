"""API keys, schedules and webhooks of a scripted memory: the real RPCs and rules over dicts. Webhook deliveries succeed
at once.
"""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from services.memory.keys.store import KeyStore
from services.memory.keys.suspensions import SuspensionStore
from services.memory.schedules.store import ScheduleStore
from services.memory.storage.event_rows import OutsideEvent
from services.memory.storage.records.deliveries import EVENT_FIELDS, list_values
from services.memory.storage.records.kind import Records
from services.memory.storage.records.webhooks import DELIVERED, Delivery, DeliveryQuery, Webhook
from services.memory.webhooks.run_webhooks import RunWebhookStore
from services.memory.webhooks.store import WebhookStore
from services.runtime.net.allow_list import AllowList


class ListedRecords:
    """Records of one tenant and user by their ids."""

    change: Any = Records.change
    keep: Any = Records.keep
    check_kept: Any = Records.check_kept

    def __init__(self, id_field: str) -> None:
        self.kind = SimpleNamespace(name="record")
        self.records: dict[str, Any] = {}
        self._id_field = id_field

    def get_id(self, record: Any) -> str:
        return getattr(record, self._id_field)

    async def list_own(self, tenant: str, *, suspends: bool = False) -> list[Any]:
        return [*self.records.values()]

    async def count_all(self) -> int:
        return len(self.records)

    async def find(self, record_id: str) -> Any:
        return self.records.get(record_id)

    async def put(self, record: Any, before: int = 0) -> bool:
        self.records[getattr(record, self._id_field)] = record
        return True

    async def delete(self, record_id: str) -> None:
        self.records.pop(record_id, None)

    async def list_changes(self, after_revision: int, count: int) -> list[Any]:
        return []


class ListedSchedules(ListedRecords):
    async def list_own(  # pyright: ignore[reportIncompatibleMethodOverride] - schedules are no keys
        self, tenant: Any, after: tuple[int, str] = (0, ""), count: int = 0
    ) -> list[Any]:
        own = ((row.created_at, row.schedule_id, row) for row in self.records.values())
        return [row for *place, row in sorted(own) if (*place,) > after][:count]

    async def count_own(self, owner: Any) -> int:
        return len(self.records)


class ListedWebhooks(ListedRecords):
    def __init__(self) -> None:
        super().__init__("webhook_id")
        self._deliveries: list[Delivery] = []

    async def list_ids(self, tenant: str) -> list[tuple[str, str]]:
        return [(webhook.webhook_id, webhook.run_id) for webhook in self.records.values()]

    async def list_of_run(self, tenant: str, run_id: str) -> list[Webhook]:
        return [webhook for webhook in self.records.values() if webhook.run_id == run_id]

    async def count_of_runs(self, tenant: str) -> int:
        return sum(bool(webhook.run_id) for webhook in self.records.values())

    async def add_delivery(self, webhook_id: str, event: OutsideEvent) -> Delivery | None:
        given: dict[str, Any] = dict(zip(EVENT_FIELDS, list_values(event), strict=True))
        sent = Delivery(webhook_id=webhook_id, tries=0, **given)
        delivered = replace(sent, state=DELIVERED, tries=1, closed_at=event.occurred_at + 5, status=204)
        self._deliveries.insert(0, delivered)
        return sent

    async def list_deliveries(self, query: DeliveryQuery) -> tuple[list[Delivery], None]:
        return [delivery for delivery in self._deliveries if query.state in ("", delivery.state)], None

    async def replay(self, webhook_id: str, event_ids: Sequence[str], now: int) -> int:
        return sum(delivery.event_id in event_ids for delivery in self._deliveries)


# Any: the stores take what services alone ask for, too.


def make_key_store() -> KeyStore:
    listed: Any = ListedRecords("key_id")
    return KeyStore(listed, roles=["ci", "staff"])


def make_suspension_store() -> SuspensionStore:
    listed: Any = ListedRecords("key_id")
    return SuspensionStore(listed)


def make_schedule_store() -> ScheduleStore:
    listed: Any = ListedSchedules("schedule_id")
    no_chats: Any = None  # schedules without a chat ask for none
    return ScheduleStore(listed, no_chats)


def make_webhook_store() -> WebhookStore:
    listed: Any = ListedWebhooks()
    return WebhookStore(listed, AllowList())


def make_run_webhook_store() -> RunWebhookStore:
    """Make a store for webhooks of runs, all of which are live and accessible to everybody."""
    listed: Any = ListedWebhooks()

    async def find_end(run_id: str) -> OutsideEvent | None:
        return None

    return RunWebhookStore(listed, find_end, AllowList())
