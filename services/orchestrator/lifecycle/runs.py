"""The live runs of this process: accepted, queued behind their chat's earlier ones, driven, forgotten when ended."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from functools import partial

from headrace.errors import ChatBusy, HeadraceError, Overloaded, QueueFull
from headrace.v1 import agent_pb2, common_pb2, memory_pb2
from services.orchestrator import ids, tracing
from services.orchestrator.agents.registry import Registry
from services.orchestrator.lifecycle import steer_rpc, submit_rpc
from services.orchestrator.lifecycle.agent_selection import choose
from services.orchestrator.lifecycle.drive import ahead, drive, go_on
from services.orchestrator.lifecycle.fair_use import FairUse
from services.orchestrator.lifecycle.leases import Owner
from services.orchestrator.lifecycle.persist import Accepting
from services.orchestrator.lifecycle.start_result import Begun, Elsewhere, Repeated, stopping
from services.orchestrator.peers import stored_runs
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.approvals.file import RulesFile
from services.orchestrator.run.run import Run
from services.orchestrator.run.steer_queue import Steer
from services.orchestrator.turn import compact_command
from services.runtime.auth import identity
from services.runtime.capacity import RETRY_AFTER_S, Capacity
from services.runtime.rpc.call_ids import bind_run_id
from services.runtime.telemetry import spans

WAITING_MAX = 8
"""Queries of one chat that wait for its running one."""

UNSTORED_MAX = 1000
"""Kept until the process ends; a log that takes nothing is rare."""

ENDING_S = 5.0
"""How long runs that are given up may take to hand over: the process's stop must fit into compose's
stop_grace_period."""


class Runs:
    """Starts and finds runs; `group`, which lives as long as the service, owns their tasks."""

    def __init__(
        self,
        registry: Registry,
        peers: Peers,
        group: asyncio.TaskGroup,
        room: Capacity,
        rules: RulesFile,
        owner: Owner,
        fair_use: FairUse,
    ) -> None:
        self._registry = registry
        self._peers = peers
        self._room = room
        self._rules = rules
        self._accepting = Accepting(peers, owner, self.of_chat)
        self._fair_use = fair_use
        self._live: dict[str, Run] = {}
        self._by_chat: dict[str, list[Run]] = {}
        """Live runs of a chat in the order of their queries; the first one runs."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """The tasks of the live runs."""
        self.unstored: dict[str, common_pb2.Failure] = {}
        """What the last runs ended with whose logs took no end: whoever ends them is to say the same."""
        self.is_draining = False
        self._is_handing_over = False
        self._idle = asyncio.Event()
        """Set while no run is live."""
        self._idle.set()
        self._group = group

    async def start(self, request: agent_pb2.QueryRequest) -> Begun:
        """Accept a query: its line is committed when this returns a run.

        Raises:
            NotFound, InvalidRequest: The agent.
            ChatBusy, QueueFull, Overloaded: As the contract says.
        """
        if self.of_chat(request.chat_id):
            return await self._start(request)
        self._check_room(request.chat_id)
        async with self._fair_use.turn(identity.require_identity().tenant):
            return await self._start(request)

    async def _start(self, request: agent_pb2.QueryRequest) -> Begun:
        routed = await choose(request, self.of_chat(request.chat_id), self._registry, self._peers)
        query = agent_pb2.QueryRequest()
        query.CopyFrom(request)
        query.chat_id = request.chat_id or ids.new_uuid()
        query.request_id = request.request_id or ids.new_uuid()
        query.agent_key = routed.agent.key
        query.role = request.role or "user"
        self._check_room(query.chat_id)
        self._check_busy(query)
        run = Run(ids.new_uuid(), routed.agent, query, self._peers)
        if routed.usage is not None:
            run.spending.recall_model_call(routed.usage)
        if routed.problem:
            run.notices.append(("AGENT_NOT_PICKED", routed.problem))
        run.opens_chat = not request.chat_id
        return await self._begin(run)

    async def _begin(self, run: Run) -> Begun:
        self._enter(run)
        earlier: asyncio.Future[Repeated | Elsewhere | None] = asyncio.get_running_loop().create_future()
        self._tasks[run.id] = self._group.create_task(self._drive(run, earlier))
        try:
            return await earlier or run
        except asyncio.CancelledError:
            # The caller left while its line was on the way to the disk. It may be there already, so the run goes on.
            if run.query.on_disconnect == "cancel":
                run.cancel()
            raise

    async def compact(self, chat_id: str) -> Begun:
        """Start a run that only compacts the chat. Raises NotFound for an unknown chat, and what `start` raises."""
        request = memory_pb2.GetChatRequest(chat_id=chat_id, without_events=True)
        agent_key = (await stored_runs.get_chat(self._peers, request)).last_agent_key
        return await self.start(
            agent_pb2.QueryRequest(
                chat_id=chat_id, agent_key=agent_key, message=compact_command.COMMAND, when_busy="reject"
            )
        )

    async def submit(self, run: Run, request: agent_pb2.SubmitRequest) -> agent_pb2.SubmitResponse:
        """Take what a person decided for a live run."""
        return await submit_rpc.submit(run, request, self._group)

    async def steer(self, run: Run | None, request: agent_pb2.SteerRequest) -> agent_pb2.SteerResponse | Elsewhere:
        """Take a message for a run; one that hears nothing any more (None: it has ended) leaves it to the next query.

        Raises:
            NotFound: There is no such run.
            QueueFull, Overloaded: It could not be taken.
        """
        request_id = request.request_id or ids.new_uuid()
        if run is not None and (run.hears or run.steering.find(request_id)):
            return await steer_rpc.steer(run, request_id, request.message, self._group)
        query = await steer_rpc.query_of(self._peers, request) if run is None else run.query
        if query is None:
            return steer_rpc.accepted(request.run_id)
        begun = await self.start(steer_rpc.as_query(query, request_id, request.message))
        if isinstance(begun, Elsewhere):
            return begun
        return agent_pb2.SteerResponse(run_id=begun.id if isinstance(begun, Run) else begun.run_id, status="queued")

    def go_on(self, run: Run) -> None:
        """Drive a run that was taken over, behind its chat's earlier ones."""
        run.go_on()
        self._enter(run)
        self._tasks[run.id] = self._group.create_task(self._drive_on(run))

    def find(self, run_id: str) -> Run | None:
        """The live run with this id, when it is the caller's."""
        run = self._live.get(run_id)
        return run if run is not None and run.identity == identity.require_identity() else None

    def has(self, run_id: str) -> bool:
        """Whether the run is live here, whosever it is."""
        return run_id in self._live

    def all(self) -> list[Run]:
        """The live runs."""
        return list(self._live.values())

    def of_chat(self, chat_id: str) -> list[Run]:
        """The live runs of a chat, in order. Raises NotFound: the chat is not the caller's."""
        runs, mine = self._by_chat.get(chat_id, ()), identity.require_identity()
        if any(run.is_accepted and run.identity != mine for run in runs):
            raise stored_runs.make_chat_not_found(chat_id)
        return [run for run in runs if run.identity == mine]

    async def drain(self, grace_s: float) -> None:
        """Take no new runs, let the live ones end for `grace_s`, then leave them to their next owner."""
        self.is_draining = True
        self._fair_use.close(stopping())
        if not await self._empty(grace_s):
            self._is_handing_over = True
            for run in list(self._live.values()):
                run.give_up()
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

    def _check_room(self, chat_id: str) -> None:
        # A chat that has a run here has no other place: its next one is handed over with it.
        if self._is_handing_over or (self.is_draining and chat_id not in self._by_chat):
            raise stopping()
        if self._room.has_room_for(identity.require_identity().tenant):
            return
        if self._room.used >= self._room.size:
            raise Overloaded(f"{self._room.size} runs are live already; try again later", retry_after_s=RETRY_AFTER_S)
        raise QueueFull(
            "the tenant has as many live runs as are left for all others; answer those that wait for people, or try"
            " again later",
            retry_after_s=RETRY_AFTER_S,
        )

    def _check_busy(self, query: agent_pb2.QueryRequest) -> None:
        earlier = self.of_chat(query.chat_id)
        if not earlier or any(run.query.request_id == query.request_id for run in earlier):
            return
        if query.when_busy == "reject":
            raise ChatBusy("the chat has a run already; wait, cancel it or enqueue", runId=earlier[0].id)
        if len(earlier) > WAITING_MAX:
            raise QueueFull(f"{WAITING_MAX} queries of this chat are waiting already", runId=earlier[0].id)

    def _enter(self, run: Run) -> None:
        self._live[run.id] = run
        self._room.acquire(run.identity.tenant)
        run.rules = self._rules
        run.agents = self._registry.by_key
        run.ask_next = self._ask_next
        self._idle.clear()
        queue = self._by_chat.setdefault(run.chat_id, [])
        queue.append(run)
        run.on_rest = partial(self._rests, run)
        if queue[0] is run:
            self._fair_use.take(run.identity.tenant)
            run.my_turn.set()

    async def _ask_next(self, run: Run, message: Steer) -> None:
        """Ask what `run` was told too late. No limit refuses it: it was accepted."""
        query = steer_rpc.as_query(run.query, message.request_id, message.text)
        begun = await self._begin(Run(ids.new_uuid(), run.agent, query, self._peers))
        if isinstance(begun, Elsewhere):
            raise Overloaded("the chat is being moved to another process; try again")
        if self._is_handing_over and isinstance(begun, Run):
            begun.give_up()

    async def _drive(self, run: Run, earlier: asyncio.Future[Repeated | Elsewhere | None]) -> None:
        """Have `run` accepted, drive it, forget it. `earlier` gets why there is nothing to drive, or the error."""
        try:
            bind_run_id(run.id)
            traceparent = spans.current_traceparent()
            async with AsyncExitStack() as stack:
                stack.enter_context(tracing.begun(run))
                if self._by_chat[run.chat_id][0] is run:
                    await stack.enter_async_context(ahead(run, self._peers))
                opening = await self._accepting.accept(run, traceparent, earlier)
                if opening is not None:
                    await drive(run, self._peers, *opening)
        finally:
            self._leave(run)

    async def _drive_on(self, run: Run) -> None:
        """Drive a run that was taken over, forget it."""
        try:
            bind_run_id(run.id)
            with tracing.taken_over(run):
                with suppress(HeadraceError):
                    # Only for a later query that takes this run back: nothing else is lost without it.
                    run.checkpoint_id = (await self._accepting.append(run, run.past.traceparent)).checkpoint_id
                await go_on(run, self._peers)
        finally:
            self._leave(run)

    def _leave(self, run: Run) -> None:
        del self._live[run.id], self._tasks[run.id]
        self._room.release(run.identity.tenant)
        if run.unstored_end is not None:
            self.unstored[run.id] = run.unstored_end
            while len(self.unstored) > UNSTORED_MAX:
                del self.unstored[next(iter(self.unstored))]
        if not self._live:
            self._idle.set()
        queue = self._by_chat[run.chat_id]
        queue.remove(run)
        if queue:
            queue[0].my_turn.set()
        else:
            del self._by_chat[run.chat_id]
            self._fair_use.give_back(run.identity.tenant)

    def _rests(self, run: Run, is_resting: bool) -> None:
        """A run that waits for people takes no place."""
        (self._fair_use.give_back if is_resting else self._fair_use.take)(run.identity.tenant)
