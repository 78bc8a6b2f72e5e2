"""The client's calls about schedules."""

from __future__ import annotations

from typing import Any

from headrace.calls.unary import UnaryCalls
from headrace.v1 import schedule_pb2

PAGE_SIZE = 200


class ScheduleCalls(UnaryCalls):
    _schedules: Any

    async def create_schedule(
        self,
        agent_key: str,
        message: str,
        *,
        cron: str = "",
        once_at: int = 0,
        time_zone: str = "",
        schedule_id: str = "",
        **fields: Any,
    ) -> schedule_pb2.Schedule:
        """Make a schedule of the times of `cron`, or of the one time `once_at` (Unix milliseconds).

        `fields` are those of CreateScheduleRequest: name, jitter_s, chat_id, overlap, catch_up, paused, on_webhook.
        With the last it may have no times, and `rotate_schedule_secret` makes the secret for what others post.
        """
        request = schedule_pb2.CreateScheduleRequest(
            schedule_id=schedule_id,
            cron=cron,
            once_at=once_at,
            time_zone=time_zone,
            agent_key=agent_key,
            message=message,
            **fields,
        )
        reply: schedule_pb2.CreateScheduleResponse = await self._send(self._schedules.CreateSchedule, request)
        return reply.schedule

    async def schedules(self, *, scope: str = "own", user: str | None = None) -> list[schedule_pb2.Schedule]:
        """Return the user's schedules, the oldest first, each with its last firing; asked for page by page.

        With scope `tenant` those of all its users, or of one `user`, for credentials with the scope operate.
        """
        request = schedule_pb2.ListSchedulesRequest(page_size=PAGE_SIZE, scope=scope, user=user)
        found: list[schedule_pb2.Schedule] = []
        while True:
            reply: schedule_pb2.ListSchedulesResponse = await self._send(self._schedules.ListSchedules, request)
            found += reply.schedules
            if not reply.next_page_token:
                return found
            request.page_token = reply.next_page_token

    async def schedule(self, schedule_id: str) -> schedule_pb2.Schedule:
        """Return a schedule with its last twenty firings."""
        request = schedule_pb2.GetScheduleRequest(schedule_id=schedule_id)
        reply: schedule_pb2.GetScheduleResponse = await self._send(self._schedules.GetSchedule, request)
        return reply.schedule

    async def update_schedule(self, schedule_id: str, **fields: Any) -> schedule_pb2.Schedule:
        """Change fields of UpdateScheduleRequest; others stay as they are."""
        request = schedule_pb2.UpdateScheduleRequest(schedule_id=schedule_id, **fields)
        reply: schedule_pb2.UpdateScheduleResponse = await self._send(self._schedules.UpdateSchedule, request)
        return reply.schedule

    async def trigger_schedule(self, schedule_id: str, request_id: str | None = None) -> schedule_pb2.Schedule:
        """Begin a run of the schedule within some seconds, beside its times; once for the same `request_id`."""
        request = schedule_pb2.TriggerScheduleRequest(schedule_id=schedule_id, request_id=request_id)
        reply: schedule_pb2.TriggerScheduleResponse = await self._send(self._schedules.TriggerSchedule, request)
        return reply.schedule

    async def rotate_schedule_secret(self, schedule_id: str, keep_s: int | None = None) -> str:
        """Return a new secret for posts to /hooks/{schedule_id}, which is shown this once; the one before counts
        beside it for `keep_s` seconds (None: a day)."""
        request = schedule_pb2.RotateScheduleSecretRequest(schedule_id=schedule_id, keep_s=keep_s)
        reply: schedule_pb2.RotateScheduleSecretResponse = await self._send(
            self._schedules.RotateScheduleSecret, request
        )
        return reply.secret

    async def delete_schedule(self, schedule_id: str) -> None:
        request = schedule_pb2.DeleteScheduleRequest(schedule_id=schedule_id)
        await self._send(self._schedules.DeleteSchedule, request)
