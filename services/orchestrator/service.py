"""AgentService: its RPCs, each a few lines on top of the domain."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

from headrace.errors import InvalidRequest, LogDamaged, NotFound, Overloaded, PermissionDenied, ProviderUnavailable
from headrace.run_states import STATES_BY_EVENT
from headrace.streams import reading
from headrace.v1 import agent_pb2, agent_pb2_grpc, llm_pb2, memory_pb2
from services.orchestrator.agents.definition import Definition
from services.orchestrator.agents.registry import Registry
from services.orchestrator.cluster.forwarding import Forwarder
from services.orchestrator.lifecycle.live_calls import cassette_rpc, context_rpc, run_list
from services.orchestrator.lifecycle.live_runs import HeldRuns, OwnedElsewhere, ParkedStream, RepeatedQuery, StartResult
from services.orchestrator.lifecycle.pins import Pins
from services.orchestrator.lifecycle.publishing import (
    Publishing,
    diff_versions,
    get_version,
    list_versions,
    validate_agent,
)
from services.orchestrator.lifecycle.runs import Runs
from services.orchestrator.peers import stored_runs
from services.orchestrator.peers.embeddings import Embeddings
from services.orchestrator.peers.models import get_model_info
from services.orchestrator.peers.stored_runs import ending_with_access
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.people.gate_service import GateService
from services.orchestrator.run.run import Run
from services.runtime.auth.identity import Identity, acting_as, require_identity
from services.runtime.formats.chat_cursor import ChatCursor
from services.runtime.randomness import new_uuid
from services.runtime.rpc.interceptors import Context
from services.runtime.rpc.push_stream import MessageSink, Watches, opening_sink

Stream: TypeAlias = int | ParkedStream
"""The outcome of a stream: its number of events, or where it continues."""


class AgentService(agent_pb2_grpc.AgentServiceServicer):
    """The RPCs about agents and runs. Ended runs are read from memory, runs of other owners through them."""

    def __init__(
        self,
        registry: Registry,
        runs: Runs,
        gates: GateService,
        held: HeldRuns,
        relays: Forwarder,
        peers: Peers,
        embeddings: Embeddings,
        publishing: Publishing,
        pins: Pins,
        watches: Watches,
    ) -> None:
        self._registry = registry
        self._runs = runs
        self._gates = gates
        self._held = held
        self._relays = relays
        self._peers = peers
        self._embeddings = embeddings
        self._publishing = publishing
        self._pins = pins
        self._watches = watches

    async def Query(self, request: agent_pb2.QueryRequest, context: Context) -> int:  # pyright: ignore[reportIncompatibleMethodOverride] - it pushes its events
        # Known from here on: a relayed query may be made twice, and must be one.
        request.request_id = request.request_id or new_uuid()
        async with opening_sink(context) as out:
            sent = await self._relays.stream(request, context, out, lambda _: self._follow_query(request, out))
            return await self._go_on_reading(sent, context, out)

    async def Compact(self, request: agent_pb2.CompactChatRequest, context: Context) -> int:  # pyright: ignore[reportIncompatibleMethodOverride] - as Query
        async with opening_sink(context) as out:
            sent = await self._relays.stream(request, context, out, lambda _: self._follow_compaction(request, out))
            return await self._go_on_reading(sent, context, out)

    async def Attach(self, request: agent_pb2.AttachRequest, context: Context) -> int:  # pyright: ignore[reportIncompatibleMethodOverride] - as Query
        async with opening_sink(context) as out, self._reading(run_id=request.run_id, shows_content=True):
            return await self._go_on(await self._attach(request, context, out), context, out)

    async def _attach(self, request: agent_pb2.AttachRequest, context: Context, out: MessageSink) -> Stream:
        return await self._relays.stream(request, context, out, lambda run: self._follow_run(request, out, run))

    async def Follow(self, request: agent_pb2.FollowRequest, context: Context) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - as Query
        after = ChatCursor.parse(request.cursor)
        if after is None:
            raise InvalidRequest.of("cursor", "must be of an event of this chat, such as '12.34'")
        watching = memory_pb2.WatchChatRequest(chat_id=request.chat_id, from_n=after.n)
        async with (
            self._watches.following(),
            opening_sink(context) as out,
            self._reading(chat_id=request.chat_id, shows_content=True),
            reading(self._peers.memory.WatchChat(watching)) as items,
        ):
            async for item in items:
                at = after if item.n == after.n else ChatCursor(item.n)
                if item.run_id:
                    await self._follow_to_end(_RunSink(out, item.run_id, at), context)
                elif at != after and not out.send(_encode_delta(at, "", item.event)):
                    await out.wait_until_drained()

    async def _follow_to_end(self, sink: _RunSink, context: Context) -> None:
        """Send the run's events after the sink's last one; if its stream breaks, open it again."""
        try:
            while not sink.is_over:
                request = agent_pb2.AttachRequest(run_id=sink.run_id, last_seq=sink.last_seq)
                if not await self._go_on(await self._attach(request, context, sink), context, sink):
                    return  # the caller has all of it
        except NotFound:
            return  # the run was reverted in the meantime
        except LogDamaged:  # its end was reverted or lost; the rest of it remains
            await _send_events(await stored_runs.list_events(self._peers, sink.run_id, sink.last_seq), sink)

    async def _follow_query(
        self, request: agent_pb2.QueryRequest, out: MessageSink
    ) -> Stream | RepeatedQuery | OwnedElsewhere:
        started = await self._runs.start(request)
        if not isinstance(started, Run):
            return started
        try:
            return await self._follow_started(started, out)
        finally:
            if request.on_disconnect == "cancel" and not (started.feed.ended or started.feed.is_cut):
                started.control.cancel()

    async def _follow_compaction(
        self, request: agent_pb2.CompactChatRequest, out: MessageSink
    ) -> Stream | RepeatedQuery | OwnedElsewhere:
        return await self._follow_started(await self._runs.compact(request.chat_id), out)

    async def _follow_started(self, started: StartResult, out: MessageSink) -> Stream | RepeatedQuery | OwnedElsewhere:
        if not isinstance(started, Run):
            return started
        if started.chat.owner in ("", started.identity.user):
            return await _follow_feed(started, 0, out)
        async with ending_with_access(self._peers, run_id=started.id):
            return await _follow_feed(started, 0, out)

    async def _follow_run(self, request: agent_pb2.AttachRequest, out: MessageSink, run: Run | None) -> Stream:
        if run is not None:
            return await _follow_feed(run, request.last_seq, out)
        return await _send_events(await stored_runs.get_events(self._peers, request.run_id, request.last_seq), out)

    async def _go_on_reading(self, sent: Stream | RepeatedQuery, context: Context, out: MessageSink) -> int:
        if isinstance(sent, int):
            return sent
        async with self._reading(run_id=sent.run_id):
            return await self._go_on(sent, context, out)

    @asynccontextmanager
    async def _reading(
        self, *, run_id: str = "", chat_id: str = "", shows_content: bool = False
    ) -> AsyncGenerator[None]:
        """Act as the chat's owner inside the block, as long as the chat is shared with the caller."""
        caller, owner = require_identity(), await self._find_owner(run_id, chat_id, shows_content=shows_content)
        if owner == caller:
            yield
            return
        async with ending_with_access(self._peers, run_id=run_id, chat_id=chat_id):
            with acting_as(owner):
                yield

    async def _go_on(self, sent: Stream | RepeatedQuery, context: Context, out: MessageSink) -> int:
        """Follow the run of a stream to its end, continuing whenever it has been parked."""
        total = 0
        while not isinstance(sent, int):
            request = agent_pb2.AttachRequest(run_id=sent.run_id)
            try:
                if isinstance(sent, ParkedStream):
                    total, request.last_seq = total + sent.sent, sent.last_seq
                    await self._held.wait(sent.run_id)
                sent = await self._attach(request, context, out)
            except (Overloaded, ProviderUnavailable):
                if not total:
                    raise
                return total  # a stream that breaks in the middle ends; its reader attaches again
        return total + sent

    async def Cancel(self, request: agent_pb2.CancelRequest, context: Context) -> agent_pb2.CancelResponse:
        async def here(run: Run | None) -> agent_pb2.CancelResponse:
            if run is None:
                stored = await stored_runs.get_run(self._peers, request.run_id)
                await self._check_cancel(stored)
                return agent_pb2.CancelResponse(run_id=request.run_id, state=stored.state)
            run.control.cancel("after_step" if request.mode == "after_step" else "now")
            return agent_pb2.CancelResponse(run_id=run.id, state=run.state.name)

        return await self._relays.answer(request, context, here)

    async def _check_cancel(self, stored: agent_pb2.Run) -> None:
        """Refuse to report an active run as cancelled: it is another user's, or its end was lost."""
        if stored.state in STATES_BY_EVENT.values():
            return
        if stored.user != require_identity().user and self._runs.live.has(stored.run_id):
            why = "its user and the chat's owner may cancel it"
            raise PermissionDenied(f"run {stored.run_id} is another user's; {why}", runId=stored.run_id)
        await stored_runs.check_not_unfinished(self._peers, stored.run_id)

    async def Submit(self, request: agent_pb2.SubmitRequest, context: Context) -> agent_pb2.SubmitResponse:
        return await self._gates.submit(request, context)

    async def Steer(self, request: agent_pb2.SteerRequest, context: Context) -> agent_pb2.SteerResponse:
        request.request_id = request.request_id or new_uuid()
        return await self._relays.answer(request, context, lambda run: self._runs.steer(run, request))

    async def ListAgents(self, request: agent_pb2.ListAgentsRequest, context: Context) -> agent_pb2.ListAgentsResponse:
        wanted = request.tag.lower()

        def is_match(agent: agent_pb2.Agent) -> bool:
            texts = (agent.key, agent.description, *agent.tags, *agent.tools, *agent.skills)
            return any(wanted in text.lower() for text in texts)

        agents = [await self._describe_agent(agent) for agent in self._registry.all()]
        return agent_pb2.ListAgentsResponse(agents=filter(is_match, agents))

    async def GetAgent(self, request: agent_pb2.GetAgentRequest, context: Context) -> agent_pb2.GetAgentResponse:
        definition = self._registry.get(request.agent_key)
        agent = await self._describe_agent(definition)
        agent.instructions = definition.primary.system_prompt
        return agent_pb2.GetAgentResponse(agent=agent)

    async def ListAgentVersions(
        self, request: agent_pb2.ListAgentVersionsRequest, context: Context
    ) -> agent_pb2.ListAgentVersionsResponse:
        return await list_versions(self._peers, self._registry, request)

    async def GetAgentVersion(
        self, request: agent_pb2.GetAgentVersionRequest, context: Context
    ) -> agent_pb2.GetAgentVersionResponse:
        return await get_version(self._peers, self._registry, request)

    async def DiffAgentVersions(
        self, request: agent_pb2.DiffAgentVersionsRequest, context: Context
    ) -> agent_pb2.DiffAgentVersionsResponse:
        return await diff_versions(self._peers, self._registry, request)

    async def ValidateAgent(
        self, request: agent_pb2.ValidateAgentRequest, context: Context
    ) -> agent_pb2.ValidateAgentResponse:
        given, modes = (request.definition, request.agent_key), self._runs.mode_names
        if request.for_tenant:
            agent, problems = await self._publishing.validate(*given, modes)
        else:
            agent, problems = await validate_agent(self._peers, self._registry.by_key, modes, *given)
        return agent_pb2.ValidateAgentResponse(problems=problems, agent=agent and _make_agent(agent))

    async def PutAgent(self, request: agent_pb2.PutAgentRequest, context: Context) -> agent_pb2.PutAgentResponse:
        agent, problems = await self._publishing.put(request, self._runs.mode_names)
        shown = None if agent is None else await self._describe_agent(agent)
        return agent_pb2.PutAgentResponse(problems=problems, is_stored=agent is not None, agent=shown)

    async def DeleteAgent(
        self, request: agent_pb2.DeleteAgentRequest, context: Context
    ) -> agent_pb2.DeleteAgentResponse:
        await self._publishing.delete(request)
        return agent_pb2.DeleteAgentResponse()

    async def ListStoredAgents(
        self, request: agent_pb2.ListStoredAgentsRequest, context: Context
    ) -> agent_pb2.ListStoredAgentsResponse:
        return await self._publishing.list_stored()

    async def GetAgentDefinition(
        self, request: agent_pb2.GetAgentDefinitionRequest, context: Context
    ) -> agent_pb2.GetAgentDefinitionResponse:
        return await self._publishing.get_definition(request)

    async def ListAgentProblems(
        self, request: agent_pb2.ListAgentProblemsRequest, context: Context
    ) -> agent_pb2.ListAgentProblemsResponse:
        return agent_pb2.ListAgentProblemsResponse(
            problems=[
                *(
                    agent_pb2.AgentProblem(file=file, problem=problem, agent_key=key)
                    for file, problem, key in self._registry.list_refused()
                ),
                *self._publishing.list_problems(),
            ]
        )

    async def GetIdentity(
        self, request: agent_pb2.GetIdentityRequest, context: Context
    ) -> agent_pb2.GetIdentityResponse:
        caller = require_identity()
        return agent_pb2.GetIdentityResponse(
            tenant=caller.tenant,
            user=caller.user,
            credential=caller.credential or None,
            roles=sorted(caller.roles),
            scopes=sorted(caller.scopes),
        )

    async def ListRuns(self, request: agent_pb2.ListRunsRequest, context: Context) -> agent_pb2.ListRunsResponse:
        with acting_as(await stored_runs.find_chat_owner(self._peers, chat_id=request.chat_id)):
            chat = await stored_runs.get_chat(self._peers, memory_pb2.GetChatRequest(chat_id=request.chat_id))
            live = {run.id: run.as_run() for run in self._runs.live.of_chat(request.chat_id)}
            runs = [live.get(run.run_id, run) for run in stored_runs.fold_runs(chat.events)]
            away = next((run.run_id for run in runs if run.state in run_list.UNENDED and run.run_id not in live), None)
            # The chat's live runs are one owner's, so one other answer is complete.
            response = await self._relays.ask_owner(request, context, away) if away else None
            if response is None:
                # For unowned runs, which wait for people, only the log has their usage.
                runs = [run if run.run_id in live else await run_list.add_usage(self._peers, run) for run in runs]
        return response or run_list.page(runs, request)

    async def Embed(self, request: llm_pb2.EmbedRequest, context: Context) -> llm_pb2.EmbedResponse:
        return await self._embeddings.embed(request, context.time_remaining())

    async def GetContext(self, request: agent_pb2.GetContextRequest, context: Context) -> agent_pb2.GetContextResponse:
        live = self._runs.live.find(request.run_id) if request.HasField("run_id") else None
        if live is None and request.HasField("run_id"):
            response = await self._relays.ask_owner(request, context, request.run_id)
            if response is not None:
                return response
        return await context_rpc.get_context(self._peers, self._registry, self._pins, live, request)

    async def GetCassette(
        self, request: agent_pb2.GetCassetteRequest, context: Context
    ) -> agent_pb2.GetCassetteResponse:
        return await cassette_rpc.get_cassette(self._peers, request)

    async def GetRun(self, request: agent_pb2.GetRunRequest, context: Context) -> agent_pb2.GetRunResponse:
        with acting_as(await self._find_owner(request.run_id)):
            live = self._runs.live.find(request.run_id)
            if live is not None:
                return agent_pb2.GetRunResponse(run=live.as_run())
            response = await self._relays.ask_owner(request, context, request.run_id)
            if response is not None:
                return response
            run = await stored_runs.get_run(self._peers, request.run_id)
            return agent_pb2.GetRunResponse(run=await run_list.add_usage(self._peers, run))

    async def _describe_agent(self, definition: Definition) -> agent_pb2.Agent:
        agent, model = _make_agent(definition), definition.primary.model
        agent.is_default = definition.key == self._registry.default_key
        if model.provider_key and model.model:
            agent.is_simulated = (await get_model_info(self._peers, model.provider_key, model.model)).is_simulated
        stored = self._registry.stored.list_of(definition.tenant).get(definition.key.casefold())
        if definition.tenant and stored is not None:
            agent.version = stored.record.version
        return agent

    async def _find_owner(self, run_id: str, chat_id: str = "", *, shows_content: bool = False) -> Identity:
        """Return the identity with which the caller may read the run or chat: its owner's, if it is shared with the
        caller."""
        live, caller = self._runs.live.find(run_id), require_identity()
        is_own = live is not None and live.chat.owner in ("", caller.user)
        if is_own and not (shows_content and caller.makers):
            return caller
        return await stored_runs.find_chat_owner(
            self._peers, chat_id=chat_id, run_id=run_id or None, shows_content=shows_content
        )


class _RunSink:
    """Sends the events of one run of a followed chat."""

    def __init__(self, out: MessageSink, run_id: str, after: ChatCursor) -> None:
        self.wait_until_drained = out.wait_until_drained
        self.run_id = run_id
        self.is_over = False
        self._out = out
        self._at = after

    @property
    def last_seq(self) -> int:
        return self._at.seq

    def send(self, message: bytes) -> bool:
        delta = agent_pb2.AgentDelta.FromString(message)
        self._at = ChatCursor(self._at.n, delta.seq)
        self.is_over = delta.WhichOneof("payload") in STATES_BY_EVENT
        return self._out.send(_encode_delta(self._at, self.run_id, delta))


def _encode_delta(cursor: ChatCursor, run_id: str, delta: agent_pb2.AgentDelta) -> bytes:
    return agent_pb2.FollowDelta(cursor=str(cursor), run_id=run_id, delta=delta).SerializeToString()


async def _send_events(events: Sequence[agent_pb2.AgentDelta], out: MessageSink) -> int:
    for event in events:
        if not out.send(event.SerializeToString()):
            await out.wait_until_drained()
    return len(events)


async def _follow_feed(run: Run, last_seq: int, out: MessageSink) -> Stream:
    followed = await run.feed.follow(last_seq, out)
    return ParkedStream(run.id, followed.last_seq, followed.sent) if run.feed.is_parked else followed.sent


def _make_agent(definition: Definition) -> agent_pb2.Agent:
    return agent_pb2.Agent(
        key=definition.key,
        name=definition.name or definition.key,
        icon=definition.icon,
        description=definition.description,
        mode=definition.mode,
        model=definition.primary.model.model or "",
        tools=definition.tools,
        skills=definition.skills,
        publish=sorted(definition.publish),
        questions=definition.questions,
        tags=definition.tags,
        owner="tenant" if definition.tenant else "operator",
    )
