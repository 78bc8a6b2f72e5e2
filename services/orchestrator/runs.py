"""The live runs of this process: accepted, queued behind their chat's earlier ones, driven, forgotten when ended."""

from __future__ import annotations

import asyncio
from itertools import takewhile

from headrace.errors import ChatBusy, Interrupted, InvalidRequest, NotFound, Overloaded, QueueFull
from headrace.v1 import agent_pb2, memory_pb2
from services.orchestrator import ids, recorded
from services.orchestrator.definition import Definition
from services.orchestrator.drive import drive
from services.orchestrator.peers import UNARY_TIMEOUT_S, Peers, peer_errors
from services.orchestrator.registry import Registry
from services.orchestrator.run import Run
from services.runtime.ids import forwarded

WAITING_MAX = 8
"""Queries of one chat that wait for its running one (operations.md, Limits)."""

ENDING_S = 5.0
"""How long interrupted runs may take to store their ends: as long as a restart of memory, and the process's stop must
fit into compose's stop_grace_period."""


class Runs:
    """Starts and finds runs; `group`, which lives as long as the service, owns their tasks."""

    def __init__(self, registry: Registry, peers: Peers, group: asyncio.TaskGroup, runs_max: int) -> None:
        self._registry = registry
        self._peers = peers
        self._runs_max = runs_max
        self._live: dict[str, Run] = {}
        self._by_chat: dict[str, list[Run]] = {}
        """Live runs of a chat in the order of their queries; the first one runs."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """The tasks of the live runs."""
        self._draining = False
        self._idle = asyncio.Event()
        """Set while no run is live."""
        self._idle.set()
        self._group = group

    async def start(self, request: agent_pb2.QueryRequest) -> Run | str:
        """Accept a query: its line is committed when this returns. The id of an earlier run when it repeats a query.

        Raises:
            NotFound, InvalidRequest: The agent.
            ChatBusy, QueueFull, Overloaded: As the contract says.
        """
        agent = await self._agent(request)
        query = agent_pb2.QueryRequest()
        query.CopyFrom(request)
        query.chat_id = request.chat_id or ids.new_uuid()
        query.request_id = request.request_id or ids.new_uuid()
        query.agent_key = agent.key
        query.role = request.role or "user"
        self._check_room()
        self._check_busy(query)
        run = Run(ids.new_uuid(), agent, query, self._peers)
        self._enter(run)
        earlier: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._tasks[run.id] = self._group.create_task(self._drive(run, earlier))
        try:
            return await earlier or run
        except asyncio.CancelledError:
            # The caller left while its line was on the way to the disk. It may be there already, so the run goes on.
            if query.on_disconnect == "cancel":
                run.cancel()
            raise

    def find(self, run_id: str) -> Run | None:
        """The live run with this id."""
        return self._live.get(run_id)

    def of_chat(self, chat_id: str) -> list[Run]:
        """The live runs of a chat, in order."""
        return list(self._by_chat.get(chat_id, ()))

    async def drain(self, grace_s: float) -> None:
        """Take no new runs, let the live ones end for `grace_s`, then end them as interrupted."""
        self._draining = True
        if not await self._empty(grace_s):
            for run in list(self._live.values()):
                run.interrupt(Interrupted("the service is being stopped; the chat is in order, ask again"))
            if not await self._empty(ENDING_S):
                for task in self._tasks.values():
                    task.cancel()

    async def _empty(self, within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def _check_room(self) -> None:
        if self._draining:
            raise Overloaded("the service is being stopped; try again")
        if len(self._live) >= self._runs_max:
            raise Overloaded(f"{self._runs_max} runs are live already; try again later")

    async def _agent(self, request: agent_pb2.QueryRequest) -> Definition:
        if request.HasField("deep_think"):
            raise InvalidRequest.of("deepThink", "needs an agent with the sections react and planExecute")
        if request.agent_key or not request.chat_id:
            return self._registry.choose(request.agent_key)
        try:
            chat = await recorded.chat_of(
                self._peers, memory_pb2.GetChatRequest(chat_id=request.chat_id, without_events=True)
            )
        except NotFound:
            return self._registry.default()
        return self._registry.get(chat.last_agent_key)

    def _check_busy(self, query: agent_pb2.QueryRequest) -> None:
        earlier = self._by_chat.get(query.chat_id)
        if not earlier or any(run.query.request_id == query.request_id for run in earlier):
            return
        if query.when_busy == "reject":
            raise ChatBusy("the chat has a run already; wait, cancel it or enqueue", runId=earlier[0].id)
        if query.when_busy == "rollback":
            raise InvalidRequest.of("whenBusy", "'rollback' is not supported by this version")
        if len(earlier) > WAITING_MAX:
            raise QueueFull(f"{WAITING_MAX} queries of this chat are waiting already", runId=earlier[0].id)

    async def _append_query(self, run: Run) -> memory_pb2.AppendResponse:
        line = memory_pb2.QueryLine(query=run.query, agent_hash=run.agent.hash)
        with peer_errors():
            return await self._peers.memory.Append(
                memory_pb2.AppendRequest(
                    chat_id=run.chat_id,
                    run_id=run.id,
                    request_id=ids.new_uuid(),
                    lines=[memory_pb2.LogLine(query=line)],
                ),
                timeout=UNARY_TIMEOUT_S,
                metadata=forwarded(),
            )

    def _enter(self, run: Run) -> None:
        self._live[run.id] = run
        self._idle.clear()
        queue = self._by_chat.setdefault(run.chat_id, [])
        queue.append(run)
        if queue[0] is run:
            run.my_turn.set()

    async def _drive(self, run: Run, earlier: asyncio.Future[str]) -> None:
        """Have `run` accepted, drive it, forget it. `earlier` gets the run that it repeats, else "", or the error."""
        try:
            reply = await self._accept(run, earlier)
            if reply is not None:
                await drive(run, self._peers, reply.chat_created, reply.chat_name)
        finally:
            self._leave(run)

    async def _accept(self, run: Run, earlier: asyncio.Future[str]) -> memory_pb2.AppendResponse | None:
        """The answer to the run's query line; None when there is nothing to drive."""
        try:
            reply = await self._append_query(run)
        except Exception as error:  # every one is the caller's, who waits for `earlier`
            if not earlier.done():
                earlier.set_exception(error)
            return None
        except asyncio.CancelledError:
            if not earlier.done():
                earlier.set_exception(Overloaded("the service is being stopped; try again"))
            raise
        if not earlier.done():
            earlier.set_result(reply.duplicate_run_id)
        if reply.HasField("duplicate_run_id"):
            return None
        if run.query.when_busy == "interrupt":
            for before in takewhile(lambda other: other is not run, self.of_chat(run.chat_id)):
                before.cancel()
        return reply

    def _leave(self, run: Run) -> None:
        del self._live[run.id], self._tasks[run.id]
        if not self._live:
            self._idle.set()
        queue = self._by_chat[run.chat_id]
        queue.remove(run)
        if queue:
            queue[0].my_turn.set()
        else:
            del self._by_chat[run.chat_id]
