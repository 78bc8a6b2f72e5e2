"""Compacts chats between their runs: no query waits for it, and one that comes meanwhile goes on beside it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

import structlog

from headrace.errors import HeadraceError
from services.orchestrator.run.run import Run

TASKS_MAX = 16
"""Compactions at a time; a chat that finds none free is compacted after a later run."""

RUNS_SKIPPED = 5
"""Runs of a chat after which a compaction that failed is tried again: each try may cost a model call."""

CHATS_MAX = 1000
"""Chats whose failures are known."""

log = structlog.get_logger()


class IdleCompactions:
    """The tasks are owned by `group`; a stop cancels them, as a later run begins them again."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._skipped: OrderedDict[str, int] = OrderedDict()

    def begin(self, run: Run) -> None:
        """Compact the chat of a run that has ended, if its last request asked for it."""
        compact = run.main.notes.compact_after_run
        if compact is None or run.chat_id in self._tasks or len(self._tasks) >= TASKS_MAX:
            return
        if skipped := self._skipped.get(run.chat_id):
            self._skipped[run.chat_id] = skipped - 1
            return
        self._tasks[run.chat_id] = self._group.create_task(self._compact(run.chat_id, compact))

    def cancel(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    async def _compact(self, chat_id: str, compact: Callable[[], Awaitable[bool]]) -> None:
        is_done = False
        try:
            is_done = await compact()
        except HeadraceError as error:
            log.warning("chat not compacted", chat_id=chat_id, reason=error.reason)
        except Exception:
            # The supervisor: one chat's compaction must not end the runs of all others.
            log.exception("chat not compacted", chat_id=chat_id)
        finally:
            del self._tasks[chat_id]
        self._skipped.pop(chat_id, None)
        if not is_done:
            self._skipped[chat_id] = RUNS_SKIPPED
            if len(self._skipped) > CHATS_MAX:
                self._skipped.popitem(last=False)
