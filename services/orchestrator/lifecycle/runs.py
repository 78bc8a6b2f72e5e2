"""The runs of this process: admit, persist, execute, finish."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from headrace.errors import ChatBusy, NotFound, Overloaded, QueueFull, QuotaExceeded
from headrace.run_states import State
from headrace.v1 import agent_pb2, common_pb2, memory_pb2
from services.orchestrator import tracing
from services.orchestrator.agents.definition import Definition
from services.orchestrator.agents.registry import Registry
from services.orchestrator.agents.version import AgentVersion
from services.orchestrator.ids import new_run_id
from services.orchestrator.lifecycle.admission import agent_router
from services.orchestrator.lifecycle.admission.admission import Admission, AdmittedQuery
from services.orchestrator.lifecycle.after_run import AfterRuns
from services.orchestrator.lifecycle.execute import NOTHING, Opening, drop_work, execute, work_ahead
from services.orchestrator.lifecycle.finish import finish, hand_over
from services.orchestrator.lifecycle.live_calls import steer_rpc
from services.orchestrator.lifecycle.live_runs import LiveRuns, OwnedElsewhere, RepeatedQuery, StartResult, may_end
from services.orchestrator.lifecycle.queries import Caller, QueryLog, find_chat, query_event, steer_query
from services.orchestrator.lifecycle.subagents import run_subagent
from services.orchestrator.money.charges import Origin
from services.orchestrator.peers import stored_runs
from services.orchestrator.peers.recorder import RECORDER, ROUTED
from services.orchestrator.run.control.state import Steer
from services.orchestrator.run.log import FirstTurn
from services.orchestrator.run.restore.resume_point import NEW, ResumePoint
from services.orchestrator.run.run import Run, RunServices
from services.orchestrator.turn import context
from services.runtime.auth.identity import require_identity
from services.runtime.newest import NewestDict
from services.runtime.randomness import new_uuid
from services.runtime.rpc.call_ids import bind_run_id
from services.runtime.telemetry import spans

UNSTORED_MAX = 1000
"""Maximum entries; logs that accept no end are rare."""

STATEFUL_MAX = 10_000

ENDING_S = 5.0
"""Time for runs to end after the grace period; fits within compose's stop_grace_period."""

AGENT_CHANGED = ("AGENT_CHANGED", "the agent was changed while this run was stopped; it continues with the new version")


class Runs:
    """The runs of this process. Their tasks are owned by `group`, which lives as long as the service."""

    def __init__(
        self,
        live: LiveRuns,
        admission: Admission,
        query_log: QueryLog,
        registry: Registry,
        services: RunServices,
        group: asyncio.TaskGroup,
    ) -> None:
        """Each run gets `services`, with the agents that it may call."""
        self.live = live
        self._admission = admission
        self._query_log = query_log
        self._registry = registry
        self._services = replace(services, delegate=run_subagent, on_rest=live.rest)
        self._peers = services.peers
        self._group = group
        self._after = AfterRuns(group, services.peers)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stateful: NewestDict[str, None] = NewestDict(STATEFUL_MAX)
        """Chats with a state; their next runs load it before any other work."""
        self.unstored: NewestDict[str, common_pb2.Failure] = NewestDict(UNSTORED_MAX)
        """By run: the failure to store as its end, because its log accepted no other end."""

    @property
    def is_draining(self) -> bool:
        return self._admission.is_draining

    @property
    def mode_names(self) -> list[str]:
        """Names of the operator's modes."""
        return self._services.modes.names

    async def start(self, request: agent_pb2.QueryRequest) -> StartResult:
        """Start the query's run. Raises the errors of `Admission.admit`."""
        request = find_chat(request)
        # The router costs a call to a model, which a repeated query must not make.
        if request.agent_key == agent_router.ROUTER_KEY and (repeated := await self._find_repeated(request)):
            return repeated
        try:
            return await self._admission.admit(request, self._begin)
        except (ChatBusy, NotFound, QueueFull, QuotaExceeded):
            # A repeated query begins nothing, and needs neither a place in the chat nor its agent.
            if (repeated := await self._find_repeated(request)) is None:
                raise
            return repeated

    async def _find_repeated(self, request: agent_pb2.QueryRequest) -> RepeatedQuery | None:
        if not (request.chat_id and request.request_id):
            return None
        run_id = await stored_runs.find_run_of_request(self._peers, request.chat_id, request.request_id)
        return RepeatedQuery(run_id) if run_id else None

    async def _begin(self, admitted: AdmittedQuery) -> StartResult:
        routed, chosen = admitted.routed, admitted.chosen
        run = self._make_run(new_run_id(), chosen.agent, admitted.query, chosen.agents, version=chosen.version)
        if admitted.opens_chat:
            run.chat.open_chat()
        if run.recorder is not None and (routed.usage is not None or routed.problem):
            run.recorder.problem = ROUTED  # the router's model call came before the recording began
        if routed.usage is not None:
            run.spending.charge_model_call(routed.usage, Origin(routed.agent.key, routed.model))
        notices = [("AGENT_NOT_PICKED", routed.problem)] if routed.problem else []
        return await self._launch_run(run, Opening(notices=notices))

    async def _launch_run(self, run: Run, opening: Opening) -> StartResult:
        """Return when the query is stored, or when no run begins."""
        self.live.add(run)
        caller: Caller = asyncio.get_running_loop().create_future()
        self._tasks[run.id] = self._group.create_task(self._run(run, opening, caller))
        try:
            return await caller or run
        except asyncio.CancelledError:
            # The caller left while its line was being written. The line may be on disk already, so the run continues.
            if run.query.on_disconnect == "cancel":
                run.control.cancel()
            raise

    async def _run(self, run: Run, opening: Opening, caller: Caller | None = None) -> None:
        """Execute a run from its query to its end.

        `caller` waits until the query is stored; None if the run resumes from an earlier owner's records.
        """
        ahead: asyncio.Task[str] | None = None
        try:
            bind_run_id(run.id)
            traceparent = spans.current_traceparent()
            with tracing.start_run_span(run) if caller is not None else tracing.start_resumed_span(run):
                if caller is None:
                    stored = await self._query_log.store_again(run)
                else:
                    RECORDER.set(run.recorder)
                    agent = run.agent
                    # A cassette has one order, so a recorded run does not work ahead.
                    if self.live.is_first(run) and run.recorder is None:
                        run.first_turn = None if run.chat_id in self._stateful else FirstTurn()
                        ahead = work_ahead(run, self._peers, opening)
                    if (stored := await self._query_log.store(run, traceparent, caller)) is None:
                        return
                    if run.first_turn is not None:
                        self._stateful[run.chat_id] = None
                        await run.drop_work(agent)
                    self._cancel_earlier(run)
                    run.main.publish(query_event(run.query, run.identity.user))
                await run.state.wait_for_turn()
                if caller is not None:
                    if stored is not None and stored.chat_created:
                        run.chat.open_chat()
                        run.main.publish(agent_pb2.ChatStart(chat_id=run.chat_id, chat_name=stored.chat_name))
                    run.main.publish(run.as_start())
                line = await execute(run, self._peers, opening)
                if line is None:
                    await hand_over(run, self._peers)
                elif (failure := await finish(run, line, self._ask_next)) is not None:
                    self.unstored[run.id] = failure
                elif line.state != State.FAILED and not self.is_draining:
                    self._after.begin(run, stored)
        finally:
            if ahead is not None:
                await drop_work(ahead)
            del self._tasks[run.id]
            self.live.remove(run)

    def _cancel_earlier(self, run: Run) -> None:
        """Cancel the earlier runs that the query ends: by its `whenBusy`, or by the agents' `onNewMessage` if they wait
        only for people.

        Other users' runs are ended only if the query's user owns the chat.
        """
        how, earlier = run.query.when_busy, [other for other in self.live.before(run) if may_end(other, run.identity)]
        for before in earlier:
            if how in ("interrupt", "rollback"):
                before.control.cancel()
            elif not how and before.agent.on_new_message == "cancel":
                before.cancel_wait(run.state.created_at)
            elif not how and before.agent.on_new_message == "answer_default":
                before.gates.pass_over(run.state.created_at)
        if how == "rollback":
            run.chat.take_back([before.chat for before in earlier])

    async def _ask_next(self, run: Run, message: Steer) -> None:
        """Ask an accepted message, which no limit may refuse."""
        query = steer_query(run.query, message.request_id, message.text)
        next_run = self._make_run(new_run_id(), run.agent, query, run.services.agents, version=run.version)
        started = await self._launch_run(next_run, NOTHING)
        if isinstance(started, OwnedElsewhere):
            raise Overloaded("the chat is being moved to another process; try again")
        if self._admission.is_handing_over and isinstance(started, Run):
            started.control.give_up()

    def resume(
        self,
        run_id: str,
        agent: Definition,
        query: agent_pb2.QueryRequest,
        past: ResumePoint,
        version: AgentVersion | None = None,
    ) -> Run:
        """Resume a run; without a version, its other agents are those now in force."""
        existing = self._registry.get_reachable(agent)
        agents = version.overlay_agents(existing) if version is not None else existing
        run = self._make_run(run_id, agent, query, agents, past, version)
        opening = Opening(run.hold_resets(), [AGENT_CHANGED] if past.is_changed else [])
        self.live.add(run)
        self._cancel_earlier(run)  # again: the owner that should have done it is dead
        self._tasks[run.id] = self._group.create_task(self._run(run, opening))
        return run

    def _make_run(
        self,
        run_id: str,
        agent: Definition,
        query: agent_pb2.QueryRequest,
        agents: Mapping[str, Definition],
        past: ResumePoint = NEW,
        version: AgentVersion | None = None,
    ) -> Run:
        services = replace(self._services, agents=agents)
        return Run(run_id, agent, query, services, past, version)

    async def compact(self, chat_id: str) -> StartResult:
        """Start a run that compacts the chat. Raises NotFound, and the errors of `start`."""
        request = memory_pb2.GetChatRequest(chat_id=chat_id, without_events=True)
        agent_key = (await stored_runs.get_chat(self._peers, request)).last_agent_key
        return await self.start(
            agent_pb2.QueryRequest(
                chat_id=chat_id, agent_key=agent_key, message=context.COMPACT_COMMAND, when_busy="reject"
            )
        )

    async def steer(self, run: Run | None, request: agent_pb2.SteerRequest) -> agent_pb2.SteerResponse | OwnedElsewhere:
        """Steer the run; a message that it cannot receive becomes the next query.

        Raises:
            NotFound: The user has no such run.
            PermissionDenied: The run is another user's.
            QueueFull, Overloaded: The message was refused.
        """
        request_id = request.request_id or new_uuid()
        if run is not None and run.identity != require_identity():
            raise steer_rpc.make_foreign_error(run.id)
        if run is not None and (queued := self._find_queued_steer(run, request_id)) is not None:
            return agent_pb2.SteerResponse(run_id=queued.id, status="queued")
        if run is not None and (run.hears or run.steering.find(request_id)):
            run.note_received(request)
            return await steer_rpc.steer(run, request_id, request.message, self._group)
        query = await steer_rpc.query_of(self._peers, request) if run is None else run.query
        if query is None:
            return steer_rpc.make_accepted(request.run_id)
        started = await self.start(steer_query(query, request_id, request.message))
        if isinstance(started, OwnedElsewhere):
            return started
        return agent_pb2.SteerResponse(
            run_id=started.id if isinstance(started, Run) else started.run_id, status="queued"
        )

    def _find_queued_steer(self, run: Run, request_id: str) -> Run | None:
        """Return the stored query that this message became before the run began.

        None if the run itself accepts the message, or if the query is not committed yet, because the log may refuse it.
        """
        if run.steering.find(request_id):
            return None
        asked = steer_query(run.query, request_id, "").request_id
        stored = (other for other in self.live.list_chat(run) if other.state.is_stored)
        return next((other for other in stored if other.query.request_id == asked), None)

    async def drain(self, grace_s: float) -> None:
        """Wait up to `grace_s` for live runs to end, then leave the rest to their next owners."""
        self._admission.drain()
        self._after.cancel_compactions()
        if not await self.live.wait_until_idle(grace_s):
            self._admission.hand_over()
            for run in self.live.all():
                run.control.give_up()
            if not await self.live.wait_until_idle(ENDING_S):
                for task in self._tasks.values():
                    task.cancel()
        self._after.cancel_questions()
