"""ScheduleService: the RPCs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import InvalidRequest
from headrace.v1 import common_pb2, schedule_pb2
from headrace.v1.schedule_pb2_grpc import ScheduleServiceServicer
from services.memory.schedules.posts import Posted
from services.memory.storage.records import schedules as stored
from services.memory.webhooks.store import KEEP_S_DEFAULT
from services.runtime.auth import identity
from services.runtime.formats.same_fields import copy_fields

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from services.memory.schedules.store import ScheduleStore
    from services.memory.storage.audit import AuditTrail
    from services.memory.storage.records.schedules import Schedule
    from services.runtime.auth.identity import Identity
    from services.runtime.rpc.interceptors import Context


class ScheduleService(ScheduleServiceServicer):
    def __init__(
        self,
        schedules: ScheduleStore,
        audit: AuditTrail,
        check_deletion: Callable[[Identity], Awaitable[None]] | None = None,
    ) -> None:
        """`check_deletion` raises Held if the user's data must not be deleted."""
        self._schedules = schedules
        self._audit = audit
        self._check_deletion = check_deletion

    async def CreateSchedule(
        self, request: schedule_pb2.CreateScheduleRequest, context: Context
    ) -> schedule_pb2.CreateScheduleResponse:
        given = {field.name: getattr(request, field.name) for field in request.DESCRIPTOR.fields}
        schedule, is_new = await self._schedules.create(
            stored.Schedule(**given, tenant="", user="", version=0, created_at=0, updated_at=0)
        )
        if is_new:
            await self._record("schedule.made", schedule.schedule_id, agentKey=schedule.agent_key)
        return schedule_pb2.CreateScheduleResponse(schedule=_make_message(schedule, schedule.firings))

    async def ListSchedules(
        self, request: schedule_pb2.ListSchedulesRequest, context: Context
    ) -> schedule_pb2.ListSchedulesResponse:
        if request.scope == "tenant":
            found, token = await self._schedules.list_of_tenant(request.user, request.page_size, request.page_token)
        else:
            found, token = await self._schedules.list_own(request.page_size, request.page_token)
        rows = map(_hide_content, map(_make_row, found))
        return schedule_pb2.ListSchedulesResponse(schedules=rows, next_page_token=token)

    async def GetSchedule(
        self, request: schedule_pb2.GetScheduleRequest, context: Context
    ) -> schedule_pb2.GetScheduleResponse:
        schedule = await self._schedules.get(request.schedule_id, for_operator=True)
        return schedule_pb2.GetScheduleResponse(schedule=_hide_content(_make_message(schedule, schedule.firings)))

    async def UpdateSchedule(
        self, request: schedule_pb2.UpdateScheduleRequest, context: Context
    ) -> schedule_pb2.UpdateScheduleResponse:
        changes = {field.name: value for field, value in request.ListFields() if field.name != "schedule_id"}
        details = {"changed": " ".join(sorted(changes))}
        is_held = changes.pop("held", None)
        if is_held is not None and changes:
            raise InvalidRequest.of("held", "cannot be combined with other changes")
        if is_held is None:
            schedule = await self._schedules.update(request.schedule_id, changes)
        else:
            schedule = await self._schedules.hold(request.schedule_id, is_held=is_held)
            details |= {"of": schedule.user}
        await self._record("schedule.changed", schedule.schedule_id, **details)
        shown = _hide_content(_make_message(schedule, schedule.firings))
        return schedule_pb2.UpdateScheduleResponse(schedule=shown)

    async def DeleteSchedule(
        self, request: schedule_pb2.DeleteScheduleRequest, context: Context
    ) -> schedule_pb2.DeleteScheduleResponse:
        schedule = await self._schedules.get(request.schedule_id, for_operator=True)
        if self._check_deletion is not None:
            await self._check_deletion(schedule.owner)
        await self._schedules.delete(request.schedule_id)
        await self._record("schedule.deleted", request.schedule_id, of=schedule.user)
        return schedule_pb2.DeleteScheduleResponse()

    async def TriggerSchedule(
        self, request: schedule_pb2.TriggerScheduleRequest, context: Context
    ) -> schedule_pb2.TriggerScheduleResponse:
        schedule, due_at = await self._schedules.trigger(request.schedule_id, request.request_id)
        return schedule_pb2.TriggerScheduleResponse(schedule=_make_message(schedule, schedule.firings), due_at=due_at)

    async def RotateScheduleSecret(
        self, request: schedule_pb2.RotateScheduleSecretRequest, context: Context
    ) -> schedule_pb2.RotateScheduleSecretResponse:
        keep_s = request.keep_s if request.HasField("keep_s") else KEEP_S_DEFAULT
        schedule, secret = await self._schedules.rotate(request.schedule_id, keep_s)
        await self._record("schedule.secret_rotated", schedule.schedule_id, keepS=keep_s)
        return schedule_pb2.RotateScheduleSecretResponse(
            schedule=_make_message(schedule, schedule.firings), secret=secret
        )

    async def ReceiveWebhook(
        self, request: schedule_pb2.ReceiveWebhookRequest, context: Context
    ) -> schedule_pb2.ReceiveWebhookResponse:
        posted = Posted(request.webhook_id, request.timestamp, request.signature, request.payload)
        return schedule_pb2.ReceiveWebhookResponse(status=await self._schedules.receive(request.schedule_id, posted))

    async def ListDueSchedules(
        self, request: schedule_pb2.ListDueSchedulesRequest, context: Context
    ) -> schedule_pb2.ListDueSchedulesResponse:
        due, next_at = await self._schedules.list_due(request.agent_keys, may_lag=request.may_lag)
        return schedule_pb2.ListDueSchedulesResponse(due=map(_make_due, due), next_at=next_at)

    async def RecordFiring(
        self, request: schedule_pb2.RecordFiringRequest, context: Context
    ) -> schedule_pb2.RecordFiringResponse:
        given = request.firing
        failure = None
        if given.HasField("failure"):
            failure = stored.Failure(given.failure.code, given.failure.message, given.failure.retriable)
        firing = stored.Firing(given.due_at, 0, given.outcome, given.run_id, given.chat_id, failure)
        schedule = await self._schedules.record(request.schedule_id, firing)
        return schedule_pb2.RecordFiringResponse(schedule=_make_row(schedule))

    async def _record(self, event: str, schedule_id: str, **details: str | int) -> None:
        await self._audit.record(event, identity.require_identity(), scheduleId=schedule_id, **details)


def _hide_content(schedule: schedule_pb2.Schedule) -> schedule_pb2.Schedule:
    """Remove the content of another user's schedule."""
    if schedule.user != identity.require_identity().user:
        schedule.ClearField("name")
        schedule.ClearField("message")
    return schedule


def _make_row(schedule: Schedule) -> schedule_pb2.Schedule:
    """Return a schedule for a list: with its last firing, without its message."""
    row = _make_message(schedule, schedule.firings[:1])
    row.ClearField("message")
    return row


def _make_message(schedule: Schedule, firings: Sequence[stored.Firing]) -> schedule_pb2.Schedule:
    return copy_fields(
        schedule, schedule_pb2.Schedule, firings=map(_make_firing, firings), posts_waiting=len(schedule.posts)
    )


def _make_firing(firing: stored.Firing) -> schedule_pb2.Firing:
    failure = copy_fields(firing.failure, common_pb2.Failure) if firing.failure is not None else None
    return copy_fields(firing, schedule_pb2.Firing, failure=failure)


def _make_due(schedule: Schedule) -> schedule_pb2.DueSchedule:
    found = schedule.find_post(schedule.due_at)
    return copy_fields(
        schedule,
        schedule_pb2.DueSchedule,
        schedule=_make_message(schedule, schedule.firings[:1]),
        post=copy_fields(found, schedule_pb2.Post) if found else None,
    )
