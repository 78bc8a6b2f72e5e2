"""Chats that are followed over their runs, for faces that show some agents."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

import grpc

from headrace.errors import NotFound
from headrace.streams import reading
from headrace.v1 import agent_pb2, agent_pb2_grpc
from services.facade.faces.runs import FaceRuns
from services.runtime.rpc import call_ids
from services.runtime.rpc.push_stream import Watches


def rewind(cursor: str) -> str:
    """Return the cursor from which the whole run of a chat's cursor comes again."""
    return f"{cursor.partition('.')[0]}.0" if cursor else ""


def order(cursor: str) -> tuple[int, int]:
    """Return what orders the cursors of a chat; those of Follow have this form."""
    n, _, seq = cursor.partition(".")
    return int(n or 0), int(seq or 0)


class FollowedChats:
    def __init__(self, orchestrator: grpc.aio.Channel, runs: FaceRuns, watches: Watches) -> None:
        # Any: the stubs' types know the RPCs of synchronous channels too.
        self._agents: Any = agent_pb2_grpc.AgentServiceStub(orchestrator)
        self._runs = runs
        self._watches = watches

    async def follow(
        self,
        chat_id: str,
        cursor: str,
        agent_keys: Collection[str] | None,
        take: Callable[[agent_pb2.FollowDelta], Awaitable[bool]],
    ) -> None:
        """Pass on what runs of these agents, or of all, do after `cursor`, and what is between runs.

        It ends when `take` returns False or the facade stops. Raises what AgentService.Follow does.
        """
        request = agent_pb2.FollowRequest(chat_id=chat_id, cursor=cursor)
        run_id, is_shown = "", True
        async with (
            self._watches.following(),
            reading(self._agents.Follow(request, metadata=call_ids.forward_metadata())) as deltas,
        ):
            async for delta in deltas:
                if delta.run_id != run_id:
                    run_id, is_shown = delta.run_id, await self._is_shown(delta.run_id, agent_keys)
                if is_shown and not await take(delta):
                    return

    async def _is_shown(self, run_id: str, agent_keys: Collection[str] | None) -> bool:
        if not run_id or agent_keys is None:
            return True
        try:
            await self._runs.get_run(run_id, [*agent_keys])
        except NotFound:
            return False
        return True
