"""AgentService: the RPCs, each a few lines over the domain."""

from __future__ import annotations

from headrace.v1 import agent_pb2, agent_pb2_grpc, memory_pb2
from services.orchestrator import recorded, run_list, submits
from services.orchestrator.definition import Definition
from services.orchestrator.peers import Peers
from services.orchestrator.registry import Registry
from services.orchestrator.run import Run
from services.orchestrator.runs import Runs
from services.orchestrator.takeover import Takeover
from services.runtime.flow import Outlet, outlet
from services.runtime.interceptors import Context


class AgentService(agent_pb2_grpc.AgentServiceServicer):
    """Answers for live runs from `runs`, for ended ones from memory."""

    def __init__(self, registry: Registry, runs: Runs, takeover: Takeover, peers: Peers) -> None:
        self._registry = registry
        self._runs = runs
        self._takeover = takeover
        self._peers = peers

    async def Query(self, request: agent_pb2.QueryRequest, context: Context) -> int:  # pyright: ignore[reportIncompatibleMethodOverride] - it pushes its events
        started = await self._runs.start(request)
        async with outlet(context) as out:
            return await self._follow_started(started, out, cancel_on_leave=request.on_disconnect == "cancel")

    async def Compact(self, request: agent_pb2.CompactChatRequest, context: Context) -> int:  # pyright: ignore[reportIncompatibleMethodOverride] - as Query
        started = await self._runs.compact(request.chat_id)
        async with outlet(context) as out:
            return await self._follow_started(started, out)

    async def Attach(self, request: agent_pb2.AttachRequest, context: Context) -> int:  # pyright: ignore[reportIncompatibleMethodOverride] - as Query
        async with outlet(context) as out:
            return await self._follow(request.run_id, request.last_seq, out)

    async def Cancel(self, request: agent_pb2.CancelRequest, context: Context) -> agent_pb2.CancelResponse:
        run = await self._takeover.live(request.run_id)
        if run is None:
            state = (await recorded.run_of(self._peers, request.run_id)).state
            return agent_pb2.CancelResponse(run_id=request.run_id, state=state)
        run.cancel("after_step" if request.mode == "after_step" else "now")
        return agent_pb2.CancelResponse(run_id=run.id, state=run.state)

    async def Submit(self, request: agent_pb2.SubmitRequest, context: Context) -> agent_pb2.SubmitResponse:
        submits.check(request)
        run = await self._takeover.live(request.run_id)
        if run is None:
            return await submits.too_late(self._peers, request)
        return await self._runs.submit(run, request)

    async def Steer(self, request: agent_pb2.SteerRequest, context: Context) -> agent_pb2.SteerResponse:
        return await self._runs.steer(await self._takeover.live(request.run_id), request)

    async def ListAgents(self, request: agent_pb2.ListAgentsRequest, context: Context) -> agent_pb2.ListAgentsResponse:
        agents = [_agent(agent) for agent in self._registry.all()]
        wanted = request.tag.lower()
        return agent_pb2.ListAgentsResponse(agents=[agent for agent in agents if _has(agent, wanted)])

    async def GetAgent(self, request: agent_pb2.GetAgentRequest, context: Context) -> agent_pb2.GetAgentResponse:
        definition = self._registry.get(request.agent_key)
        agent = _agent(definition)
        agent.instructions = definition.primary.system_prompt
        return agent_pb2.GetAgentResponse(agent=agent)

    async def ListRuns(self, request: agent_pb2.ListRunsRequest, context: Context) -> agent_pb2.ListRunsResponse:
        chat = await recorded.chat_of(self._peers, memory_pb2.GetChatRequest(chat_id=request.chat_id))
        live = {run.id: run.as_run() for run in self._runs.of_chat(request.chat_id)}
        runs = [live.get(run.run_id, run) for run in recorded.fold_runs(chat.events)]
        return run_list.page(runs, request)

    async def GetRun(self, request: agent_pb2.GetRunRequest, context: Context) -> agent_pb2.GetRunResponse:
        live = self._runs.find(request.run_id)
        run = live.as_run() if live is not None else await recorded.run_of(self._peers, request.run_id)
        return agent_pb2.GetRunResponse(run=run)

    async def _follow_started(self, started: Run | str, out: Outlet, *, cancel_on_leave: bool = False) -> int:
        """Send the events of a run that a query has started, or that it repeats; return how many."""
        if isinstance(started, str):
            return await self._follow(started, 0, out)
        try:
            return await started.feed.follow(0, out)
        finally:
            if cancel_on_leave and not (started.feed.ended or started.feed.is_cut):
                started.cancel()

    async def _follow(self, run_id: str, last_seq: int, out: Outlet) -> int:
        run = await self._takeover.live(run_id)
        if run is not None:
            return await run.feed.follow(last_seq, out)
        events = await recorded.events_of(self._peers, run_id, last_seq)
        for event in events:
            if not out.send(event.SerializeToString()):
                await out.drained()
        return len(events)


def _agent(definition: Definition) -> agent_pb2.Agent:
    return agent_pb2.Agent(
        key=definition.key,
        name=definition.name or definition.key,
        icon=definition.icon,
        description=definition.description,
        mode=definition.mode,
        model=definition.primary.model.model or "",
        tools=definition.tools,
        skills=definition.skills,
    )


def _has(agent: agent_pb2.Agent, wanted: str) -> bool:
    return any(wanted in text.lower() for text in (agent.key, agent.description, *agent.tools, *agent.skills))
