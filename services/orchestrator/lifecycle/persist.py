"""A query on its way into the log: its run is accepted when its line is committed; the caller learns what else came."""

from __future__ import annotations

import asyncio
from itertools import takewhile
from typing import TYPE_CHECKING

from headrace.errors import ChatBusy
from headrace.v1 import memory_pb2
from services.orchestrator.lifecycle.start_result import Elsewhere, Repeated, stopping
from services.orchestrator.peers.stubs import UNARY_TIMEOUT_S, Peers, translating_peer_errors
from services.runtime.rpc.call_ids import forward_metadata

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.orchestrator.lifecycle.leases import Owner
    from services.orchestrator.run.run import Run

    Caller = asyncio.Future[Repeated | Elsewhere | None]
    """Gets why there is nothing to drive, or the error; None: the run is accepted."""


class Accepting:
    """Commits the query lines of one owner's runs."""

    def __init__(self, peers: Peers, owner: Owner, of_chat: Callable[[str], list[Run]]) -> None:
        """`of_chat` gives the live runs of a chat, in order."""
        self._peers = peers
        self._owner = owner
        self._of_chat = of_chat

    async def append(self, run: Run, traceparent: str) -> memory_pb2.AppendResponse:
        """Commit the run's query line, with the span that its query came in."""
        line = memory_pb2.QueryLine(query=run.query, agent_hash=run.agent.hash, traceparent=traceparent)
        request = memory_pb2.AppendRequest(
            chat_id=run.chat_id,
            run_id=run.id,
            # Its id again: repeated, the append is answered as it was at first.
            request_id=run.id,
            lines=[memory_pb2.LogLine(query=line)],
            owner=self._owner.address,
            ttl_ms=self._owner.ttl_ms,
            beside=[other.id for other in self._of_chat(run.chat_id) if not other.log.is_lost],
        )
        with translating_peer_errors():
            return await self._peers.memory.Append(request, timeout=UNARY_TIMEOUT_S, metadata=forward_metadata())

    async def accept(self, run: Run, traceparent: str, caller: Caller) -> tuple[bool, str] | None:
        """Whether the run's query line has created the chat, and its name; None when there is nothing to drive."""
        try:
            reply = await self.append(run, traceparent)
        except ChatBusy as error:
            if not caller.done():
                caller.set_result(Elsewhere(error.metadata["runId"]))
            return None
        except Exception as error:  # every one is the caller's
            if not caller.done():
                caller.set_exception(error)
            return None
        except asyncio.CancelledError:
            if not caller.done():
                caller.set_exception(stopping())
            raise
        if not caller.done():
            caller.set_result(Repeated(reply.duplicate_run_id) if reply.HasField("duplicate_run_id") else None)
        if reply.HasField("duplicate_run_id"):
            return None
        run.checkpoint_id, run.is_accepted = reply.checkpoint_id, True
        self._take_over_from_earlier(run)
        return reply.chat_created, reply.chat_name

    def _take_over_from_earlier(self, run: Run) -> None:
        """End the chat's earlier runs, where the query asks for that."""
        if run.query.when_busy not in ("interrupt", "rollback"):
            return
        earlier = list(takewhile(lambda other: other is not run, self._of_chat(run.chat_id)))
        for before in earlier:
            before.cancel()
        if run.query.when_busy == "rollback":
            run.rolls_back = earlier
