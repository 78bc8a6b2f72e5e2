"""Contexts that are followed over their tasks."""

from __future__ import annotations

from collections.abc import Callable

from headrace.v1 import agent_pb2
from services.facade.a2a.json_events import JsonEvents
from services.facade.a2a.task_view import TaskView
from services.facade.faces.followed_chats import order


class ContextSink:
    """Takes the events of a chat's runs after `cursor`, whose run comes from its beginning; each run is a task."""

    def __init__(self, make_events: Callable[[str], JsonEvents], cursor: str, base_url: str) -> None:
        """`make_events` opens the events of a task by what names it in its context."""
        self._make_events = make_events
        self._known = order(cursor)
        self._base_url = base_url
        self._run_id = ""
        self._task = TaskView()

    async def take(self, followed: agent_pb2.FollowDelta) -> bool:
        if not followed.run_id:
            return True  # A2A has no events between tasks
        n, seq = order(followed.cursor)
        known_seq = self._known[1] if n == self._known[0] else 0
        if followed.run_id != self._run_id:
            self._run_id = followed.run_id
            self._task = TaskView(self._make_events(str(n)), known_seq, base_url=self._base_url)
            self._task.stays_while_waiting = True
            self._task.has_begun = known_seq > 0
        is_ready = self._task.take(followed.delta) if seq > known_seq else self._task.recall(followed.delta)
        if not is_ready:
            await self._task.wait_until_ready()
        return True
