"""A facade with scripted peers, for a browser: runs with every event type, chats, files, views."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from headrace.errors import HeadraceError, NotFound, PermissionDenied
from headrace.v1 import (
    agent_pb2,
    common_pb2,
    gates_pb2,
    limits_pb2,
    llm_pb2,
    memory_pb2,
    operator_pb2,
    operator_pb2_grpc,
    spend_pb2,
    spend_pb2_grpc,
    tools_pb2,
)
from services.facade import service
from services.facade.config import Config
from services.runtime.clock import now_ms
from services.runtime.process.config import ProcessSettings, ServerSettings
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.server import serving_grpc as serving_rpcs
from tests.support.console.own_agents import OwnAgents
from tests.support.contract import says
from tests.support.facade.data import ScriptedData
from tests.support.facade.scripted import (
    CHAT,
    LIMITS,
    RUN,
    USAGE,
    Script,
    ScriptedMemory,
    ScriptedTools,
    Step,
    make_peer_services,
)

FORKED = "33333333-3333-4333-8333-333333333333"

Request = TypeVar("Request")

# Any: the stubs want every RPC implemented, by synchronous functions.
_OperatorServicer: Any = operator_pb2_grpc.OperatorServiceServicer

VIEWS = {
    path.stem: {"html" if path.suffix == ".html" else "view": path.read_text()}
    for path in Path(__file__).with_name("views").iterdir()
}
"""By name: pages, and the form of an order."""


class Story:
    """The events of one run, numbered as they are added."""

    def __init__(self, message: str = "hi", *, run_id: str = RUN) -> None:
        self.run_id = run_id
        self.steps: list[Step] = []
        query = agent_pb2.RequestQuery(request_id="q-1", chat_id=CHAT, role="user", message=message)
        self.add(request_query=query)
        self.add(run_start=agent_pb2.RunStart(run_id=run_id, chat_id=CHAT, agent_key="helper"))

    @property
    def seq(self) -> int:
        """Of the last event."""
        return sum(isinstance(step, agent_pb2.AgentDelta) for step in self.steps)

    @property
    def events(self) -> list[agent_pb2.AgentDelta]:
        """Without the waits."""
        return [step for step in self.steps if isinstance(step, agent_pb2.AgentDelta)]

    def add(self, **payload: Any) -> Story:
        """One event."""
        seq = self.seq + 1
        self.steps.append(agent_pb2.AgentDelta(seq=seq, timestamp=1_700_000_000_000 + 40 * seq, **payload))
        return self

    def wait(self, step: asyncio.Event | float) -> Story:
        """Go on when something has happened, or after some seconds."""
        self.steps.append(step)
        return self

    def reasoning(self, *pieces: str, number: int = 1, **where: str) -> Story:
        """A whole block of reasoning."""
        block = f"{self.run_id}_r_{number}"
        self.add(reasoning_start=agent_pb2.ReasoningStart(reasoning_id=block, run_id=self.run_id), **where)
        for piece in pieces:
            self.add(reasoning_delta=agent_pb2.ReasoningDelta(reasoning_id=block, delta=piece), **where)
        return self.add(reasoning_end=agent_pb2.ReasoningEnd(reasoning_id=block), **where)

    def begin_content(self, number: int = 1, **where: str) -> Story:
        """Open a block of the answer."""
        block = f"{self.run_id}_c_{number}"
        return self.add(content_start=agent_pb2.ContentStart(content_id=block, run_id=self.run_id), **where)

    def say(self, *pieces: str, number: int = 1, **where: str) -> Story:
        """Deltas of an open block."""
        for piece in pieces:
            delta = agent_pb2.ContentDelta(content_id=f"{self.run_id}_c_{number}", delta=piece)
            self.add(content_delta=delta, **where)
        return self

    def end_content(self, number: int = 1, **where: str) -> Story:
        """Close it."""
        return self.add(content_end=agent_pb2.ContentEnd(content_id=f"{self.run_id}_c_{number}"), **where)

    def content(self, *pieces: str, number: int = 1, **where: str) -> Story:
        """A whole block of the answer."""
        return self.begin_content(number, **where).say(*pieces, number=number, **where).end_content(number, **where)

    def call(self, tool_id: str, name: str, params: str, *, start: dict[str, Any] | None = None, **where: str) -> Story:
        """A tool call to the end of its arguments, which come in two pieces."""
        start_event = agent_pb2.ToolStart(tool_id=tool_id, run_id=self.run_id, tool_name=name, **(start or {}))
        self.add(tool_start=start_event, **where)
        half = len(params) // 2
        for index, piece in enumerate((params[:half], params[half:])):
            self.add(tool_args=agent_pb2.ToolArgs(tool_id=tool_id, delta=piece, chunk_index=index), **where)
        return self.add(tool_end=agent_pb2.ToolEnd(tool_id=tool_id, tool_params=params), **where)

    def output(self, tool_id: str, *pieces: str, **where: str) -> Story:
        """What a running tool prints."""
        for piece in pieces:
            self.add(tool_output=agent_pb2.ToolOutput(tool_id=tool_id, stream="stdout", delta=piece), **where)
        return self

    def result(self, tool_id: str, result: str, *, ok: bool = True, **where: str) -> Story:
        """What the model gets."""
        return self.add(tool_result=agent_pb2.ToolResult(tool_id=tool_id, result=result, ok=ok), **where)

    def ask_approval(self) -> Story:
        """A person is asked to allow the call c1."""
        ask: dict[str, Any] = {"reason": "deletes folders", "risk": "high", "expires_at": 1_900_000_000_000}
        return self.add(approval_ask=agent_pb2.ApprovalAsk(approval_id="ap_1", tool_id="c1", **ask))

    def plan(self, *tasks: tuple[str, str, str], is_update: bool = False) -> Story:
        """A plan of (taskId, description, status)."""
        plan = [agent_pb2.Task(task_id=key, description=text, status=status) for key, text, status in tasks]
        if is_update:
            return self.add(plan_update=agent_pb2.PlanUpdate(plan_id="aaaa0001", chat_id=CHAT, plan=plan))
        return self.add(plan_create=agent_pb2.PlanCreate(plan_id="aaaa0001", chat_id=CHAT, plan=plan))

    def complete(self) -> Story:
        """The end of a run that has its answer."""
        completion = agent_pb2.RunComplete(run_id=self.run_id, finish_reason="stop", usage=USAGE)
        return self.add(run_complete=completion)

    def cancelled(self) -> Story:
        """The end of a run that was stopped."""
        return self.add(run_cancel=agent_pb2.RunCancel(run_id=self.run_id, usage=USAGE))


@dataclass
class Operator(_OperatorServicer):
    """A tenant's runs, which end when they are stopped, and the providers and replicas they run on."""

    runs: list[operator_pb2.OperatorRun] = field(default_factory=list[operator_pb2.OperatorRun])
    providers: list[llm_pb2.ProviderHealth] = field(default_factory=list[llm_pb2.ProviderHealth])
    replicas: list[operator_pb2.Replica] = field(default_factory=list[operator_pb2.Replica])
    requests: list[operator_pb2.OperatorListRunsRequest] = field(
        default_factory=list[operator_pb2.OperatorListRunsRequest]
    )
    cancelled: list[str] = field(default_factory=list[str])
    is_refused: bool = False
    """Whether the caller has no scope for it."""

    async def ListRuns(self, request: Any, context: Any) -> operator_pb2.OperatorListRunsResponse:
        if self.is_refused:
            raise PermissionDenied("this credential has no scope 'operate'", scope="operate")
        self.requests.append(request)
        states = {"live": ("running", "waiting"), "": tuple(run.state for run in self.runs)}
        found = [
            run
            for run in self.runs
            if run.state in states.get(request.state, (request.state,)) and request.user in ("", run.user)
        ]
        return operator_pb2.OperatorListRunsResponse(runs=found)

    async def CancelRuns(self, request: Any, context: Any) -> operator_pb2.CancelRunsResponse:
        self.cancelled += request.run_ids
        for run in self.runs:
            run.state = "cancelled" if run.run_id in request.run_ids else run.state
        ends = [operator_pb2.CancelledRun(run_id=run_id, status="cancelling") for run_id in request.run_ids]
        return operator_pb2.CancelRunsResponse(runs=ends)

    ListProviders = says(lambda self, _: llm_pb2.ListProvidersResponse(providers=self.providers))
    GetLimits = says(lambda _, __: limits_pb2.GetLimitsResponse(limits=LIMITS, missing=["tools"]))
    ListReplicas = says(lambda self, _: operator_pb2.ListReplicasResponse(replicas=self.replicas))


@dataclass
class Orchestrator(Script):
    """The facade tests' script, with the RPCs that only a console calls."""

    agent_name: str = "Helper"
    agents: Sequence[agent_pb2.Agent] = ()
    """What ListAgents returns; if empty, a helper and a writer."""
    steered_into: str = ""
    """The run that receives a steering message; if empty, the steered run itself."""
    gates: list[gates_pb2.Gate] = field(default_factory=list[gates_pb2.Gate])
    """Of all users; those whose requester is default are the caller's own."""
    scopes: tuple[str, ...] = ("admin", "answer", "ask", "operate", "read_content")
    """What the caller's credential is good for."""
    problems: tuple[agent_pb2.AgentProblem, ...] = ()
    """What ListAgentProblems gives."""
    operator: Operator = field(default_factory=Operator)
    refused_gate: HeadraceError | None = None
    """What AnswerGate raises."""
    own: OwnAgents = field(default_factory=OwnAgents)
    data: ScriptedData = field(default_factory=ScriptedData)
    begun: list[Sequence[Step]] = field(default_factory=list[Sequence[Step]])
    """The runs of all queries, of which Follow tells too."""
    has_begun: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def Query(self, request: Any, context: Any) -> AsyncGenerator[agent_pb2.AgentDelta]:
        is_first = True
        async for event in super().Query(request, context):
            if is_first and event.HasField("request_query"):
                event.request_query.request_id = request.request_id
                await self.begin(self.query)
            is_first = False
            yield event

    async def begin(self, steps: Sequence[Step]) -> None:
        """Begin a run in the chat that is followed."""
        async with self.has_begun:
            self.begun.append(steps)
            self.has_begun.notify_all()

    async def Follow(self, request: Any, context: Any) -> AsyncGenerator[agent_pb2.FollowDelta]:
        """Give what `follows` has for this call, and then the runs that begin after that of the cursor."""
        self.hear(request, context)
        for delta in self.follows.pop(0) if self.follows else ():
            if isinstance(delta, Exception):
                raise delta
            yield delta
        for number in itertools.count(int(request.cursor.partition(".")[0] or 0) + 1):
            async with self.has_begun:
                while len(self.begun) < number:
                    await self.has_begun.wait()
            async for event in self._play(self.begun[number - 1]):
                yield agent_pb2.FollowDelta(cursor=f"{number}.{event.seq}", delta=event)

    async def ValidateAgent(self, request: Any, context: Any) -> agent_pb2.ValidateAgentResponse:
        return agent_pb2.ValidateAgentResponse(problems=self.own.check(request.definition)[1])

    PutAgent = says(lambda self, request: self.own.put(request))
    DeleteAgent = says(lambda self, request: self.own.delete(request))
    ListStoredAgents = says(lambda self, _: self.own.list_stored())
    GetAgentDefinition = says(lambda self, request: self.own.get(request))
    ListAgentVersions = says(lambda self, request: self.own.list_versions(request.agent_key))

    async def first(self, kind: type[Request]) -> Request:
        """The first request of this type; waits for it."""
        async with asyncio.timeout(50):
            while True:
                for request in self.requests:
                    if isinstance(request, kind):
                        return request
                await asyncio.sleep(0.01)

    async def ListAgents(self, request: Any, context: Any) -> agent_pb2.ListAgentsResponse:
        helper = agent_pb2.Agent(
            key="helper",
            name=self.agent_name,
            icon="emoji:🧭",
            description="Helps with everything",
            mode="REACT",
            model="sim-1",
            tools=["weather"],
        )
        writer = agent_pb2.Agent(key="writer", name="Writer", mode="ONESHOT")
        return agent_pb2.ListAgentsResponse(agents=self.agents or [helper, writer])

    ListAgentProblems = says(lambda self, _: agent_pb2.ListAgentProblemsResponse(problems=self.problems))

    async def GetIdentity(self, request: Any, context: Any) -> agent_pb2.GetIdentityResponse:
        return agent_pb2.GetIdentityResponse(tenant="default", user="default", scopes=self.scopes)

    async def GetAgent(self, request: agent_pb2.GetAgentRequest, context: Any) -> agent_pb2.GetAgentResponse:
        agent = agent_pb2.Agent(key=request.agent_key, name=self.agent_name, instructions="Be <b>brief</b>.\nAlways.")
        return agent_pb2.GetAgentResponse(agent=agent)

    async def ListGates(self, request: gates_pb2.ListGatesRequest, context: Any) -> gates_pb2.ListGatesResponse:
        self.requests.append(request)
        return gates_pb2.ListGatesResponse(gates=[gate for gate in self._find_gates(request) if gate.state == "open"])

    async def WatchGates(self, request: Any, context: Any) -> AsyncGenerator[gates_pb2.WatchGatesResponse]:
        self.requests.append(request)
        sent = dict[str, bytes]()
        yield gates_pb2.WatchGatesResponse(list_begin=gates_pb2.GateListBegin())
        for is_first in itertools.chain([True], itertools.repeat(False)):
            for gate in self._find_gates(request):
                is_new = sent.get(gate.gate_id) != (row := gate.SerializeToString())
                if is_new and (gate.state == "open" or gate.gate_id in sent):
                    yield gates_pb2.WatchGatesResponse(gate=gate)
                    sent[gate.gate_id] = row
            if is_first:
                yield gates_pb2.WatchGatesResponse(list_end=gates_pb2.GateListEnd())
            await asyncio.sleep(0.02)  # tests change gates by hand

    def _find_gates(
        self, request: gates_pb2.ListGatesRequest | gates_pb2.WatchGatesRequest
    ) -> Iterator[gates_pb2.Gate]:
        for gate in self.gates:
            is_wanted = request.kind in ("", gate.kind) and request.risk in ("", gate.risk)
            is_wanted = is_wanted and request.agent_key in ("", gate.agent_key)
            if is_wanted and (request.scope != "own" or gate.requester == "default"):
                yield gate

    GetGate = says(lambda self, request: gates_pb2.GetGateResponse(gate=self.find_gate(request.gate_id)))

    async def AnswerGate(self, request: gates_pb2.AnswerGateRequest, context: Any) -> gates_pb2.AnswerGateResponse:
        if self.refused_gate is not None:
            raise self.refused_gate
        self.requests.append(request)
        gate = self.find_gate(request.gate_id)
        if gate.state != "open":
            return gates_pb2.AnswerGateResponse(status="duplicate")
        gate.state, gate.answered_by, gate.closed_at = "answered", "default", 1_800_000_000_000
        gate.answer = request.payload
        return gates_pb2.AnswerGateResponse(accepted=True, status="accepted")

    async def RevokeGrant(self, request: gates_pb2.RevokeGrantRequest, context: Any) -> gates_pb2.RevokeGrantResponse:
        self.requests.append(request)
        self.grants = [grant for grant in self.grants if grant.grant_id != request.grant_id]
        return gates_pb2.RevokeGrantResponse(status="revoked")

    def find_gate(self, gate_id: str) -> gates_pb2.Gate:
        for gate in self.gates:
            if gate.gate_id == gate_id:
                return gate
        raise NotFound(f"there is no gate {gate_id!r}")

    async def Steer(self, request: Any, context: Any) -> agent_pb2.SteerResponse:
        self.requests.append(request)
        status = "queued" if self.steered_into else "accepted"
        return agent_pb2.SteerResponse(run_id=self.steered_into or request.run_id, status=status)

    async def GetRun(self, request: Any, context: Any) -> agent_pb2.GetRunResponse:
        budget_left = agent_pb2.BudgetLeft(model_calls=28, tool_calls=49, time_ms=110_000)
        run = agent_pb2.Run(run_id=request.run_id, chat_id=CHAT, state="running", usage=USAGE, budget_left=budget_left)
        return agent_pb2.GetRunResponse(run=run)


class Spend(spend_pb2_grpc.SpendServiceServicer):
    """Answers each GetUsage with `rows` and their sum."""

    def __init__(self, *rows: spend_pb2.UsageRow) -> None:
        self.rows = rows
        self.requests: list[spend_pb2.GetUsageRequest] = []

    async def GetUsage(self, request: spend_pb2.GetUsageRequest, context: Any) -> spend_pb2.GetUsageResponse:
        self.requests.append(request)
        if request.scope == "tenant":
            raise PermissionDenied("this credential has no scope 'operate'", scope="operate")
        total = spend_pb2.UsageRow(
            cost_nano_usd=sum(row.cost_nano_usd for row in self.rows),
            input_tokens=sum(row.input_tokens for row in self.rows),
        )
        return spend_pb2.GetUsageResponse(rows=self.rows, total=total, from_day=request.from_day, to_day=request.to_day)


@dataclass
class Memory(ScriptedMemory):
    """Chats in two pages, and one chat's history."""

    events: list[agent_pb2.AgentDelta] = field(default_factory=list[agent_pb2.AgentDelta])
    raw: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Messages of the log, as they are stored."""
    cursor: str = "0.1"
    """Of the last of these events."""
    chats: dict[str, str] = field(default_factory=lambda: {CHAT: "水车 怎么"})
    older: dict[str, str] = field(default_factory=dict[str, str])
    others: dict[str, str] = field(default_factory=dict[str, str])
    """Chats of ada, who shares them with `access`."""
    access: str = "take_part"
    shares: memory_pb2.ShareChatRequest = field(default_factory=memory_pb2.ShareChatRequest)
    """What ShareChat was asked last."""
    forked: list[memory_pb2.ForkChatRequest] = field(default_factory=list[memory_pb2.ForkChatRequest])
    pins: dict[int, memory_pb2.Pin] = field(default_factory=dict[int, memory_pb2.Pin])
    refusal: HeadraceError | None = None
    """What Revert and UpdateChat raise."""
    searched: list[memory_pb2.SearchRequest] = field(default_factory=list[memory_pb2.SearchRequest])
    spend: Spend = field(default_factory=Spend)

    async def ListChats(self, request: memory_pb2.ListChatsRequest, context: Any) -> memory_pb2.ListChatsResponse:
        if request.scope == "shared":
            shared = [self._describe(key, title, owner="ada", access=self.access) for key, title in self.others.items()]
            return memory_pb2.ListChatsResponse(chats=shared)
        page = self.older if request.page_token else self.chats
        chats = [self._describe(key, title) for key, title in page.items()]
        is_last = bool(request.page_token) or not self.older
        return memory_pb2.ListChatsResponse(chats=chats, next_page_token="" if is_last else "p2")

    @staticmethod
    def _describe(chat_id: str, title: str, **fields: Any) -> memory_pb2.Chat:
        return memory_pb2.Chat(
            chat_id=chat_id,
            chat_name=title[:10],
            title=title,
            first_agent_key="helper",
            updated_at=1_700_000_060_000,
            **fields,
        )

    async def ShareChat(self, request: memory_pb2.ShareChatRequest, context: Any) -> memory_pb2.ShareChatResponse:
        if self.refusal is not None:
            raise self.refusal
        self.shares = request
        return memory_pb2.ShareChatResponse(n=9)

    async def GetChat(self, request: memory_pb2.GetChatRequest, context: Any) -> memory_pb2.GetChatResponse:
        if request.chat_id in self.others:
            events = [] if request.without_events else self.events
            return memory_pb2.GetChatResponse(
                chat_id=request.chat_id, events=events, owner="ada", access=self.access, cursor=self.cursor
            )
        if request.without_events:
            shares = self.shares
            names = sorted({*shares.shared_with, *shares.participants})
            return memory_pb2.GetChatResponse(
                chat_id=request.chat_id, access="own", shared_with=names, participants=shares.participants
            )
        if request.chat_id not in self.chats:
            raise NotFound("the chat does not exist", chatId=request.chat_id)
        raw = json.dumps(self.raw) if request.include_raw_messages else None
        return memory_pb2.GetChatResponse(
            chat_id=request.chat_id, events=self.events, cursor=self.cursor, raw_messages=raw
        )

    async def UpdateChat(self, request: memory_pb2.UpdateChatRequest, context: Any) -> memory_pb2.UpdateChatResponse:
        if self.refusal is not None:
            raise self.refusal
        self.chats[request.chat_id] = request.title or "first words"
        return memory_pb2.UpdateChatResponse(n=8, title=self.chats[request.chat_id])

    async def Search(self, request: memory_pb2.SearchRequest, context: Any) -> memory_pb2.SearchResponse:
        self.searched.append(request)
        found = [(key, title) for key, title in (self.chats | self.older).items() if request.query in title]
        hits = [
            memory_pb2.SearchHit(chat_id=key, title=title, excerpt=excerpt)
            for key, title in found
            for excerpt in (title, "a text beside it")
        ]
        return memory_pb2.SearchResponse(hits=hits)

    async def DeleteChat(self, request: memory_pb2.DeleteChatRequest, context: Any) -> memory_pb2.DeleteChatResponse:
        del self.chats[request.chat_id]
        return memory_pb2.DeleteChatResponse()

    async def ForkChat(self, request: memory_pb2.ForkChatRequest, context: Any) -> memory_pb2.ForkChatResponse:
        self.forked.append(request)
        self.chats[FORKED] = "a fork"
        return memory_pb2.ForkChatResponse(chat_id=FORKED)

    async def ListCheckpoints(self, request: Any, context: Any) -> memory_pb2.ListCheckpointsResponse:
        starts = [event.run_start.run_id for event in self.events if event.HasField("run_start")]
        found = [number for number, run_id in enumerate(starts) if run_id == request.run_id]
        step = request.kind == "step"
        return memory_pb2.ListCheckpointsResponse(
            checkpoints=[
                memory_pb2.Checkpoint(
                    checkpoint_id=number,
                    n=1 + step + 3 * number,
                    run_id=request.run_id,
                    kind="step" if step else "query",
                    text="said",
                )
                for number in found
            ]
        )

    async def PinMessage(self, request: memory_pb2.PinMessageRequest, context: Any) -> memory_pb2.PinMessageResponse:
        starts = [event.run_start.run_id for event in self.events if event.HasField("run_start")]
        role, run_id = ("user" if request.n % 3 == 1 else "assistant"), starts[(request.n - 1) // 3]
        if request.remove:
            del self.pins[request.n]
        else:
            self.pins[request.n] = memory_pb2.Pin(n=request.n, text="said", run_id=run_id, role=role)
        return memory_pb2.PinMessageResponse(n=9)

    ListPins = says(lambda self, _: memory_pb2.ListPinsResponse(pins=self.pins.values()))

    async def Revert(self, request: memory_pb2.RevertRequest, context: Any) -> memory_pb2.RevertResponse:
        if self.refusal is not None:
            raise self.refusal
        self.reverted.append(request)
        queries = [index for index, event in enumerate(self.events) if event.HasField("request_query")]
        del self.events[queries[request.checkpoint_id] :]
        return memory_pb2.RevertResponse(n=7)


class Tools(ScriptedTools):
    """Uploads, and views."""

    async def GetViewport(self, request: tools_pb2.GetViewportRequest, context: Any) -> tools_pb2.GetViewportResponse:
        if request.viewport_key not in VIEWS:
            raise NotFound(f"view {request.viewport_key!r} does not exist")
        return tools_pb2.GetViewportResponse(**VIEWS[request.viewport_key])


@dataclass(frozen=True)
class Suite:
    """A facade and the scripts behind it."""

    url: str
    script: Orchestrator
    memory: Memory
    tools: Tools


@asynccontextmanager
async def serving(folder: Path, *, script: Orchestrator, memory: Memory, tools: Tools) -> AsyncGenerator[Suite]:
    """A running facade; `folder` is for its peers' socket."""
    address = f"unix:{folder}/peer.sock"
    async with AsyncExitStack() as stack:
        settings = ServerSettings(listen=address, drain_s=0)
        others: dict[str, Any] = {"OperatorService": script.operator, "SpendService": memory.spend}
        services = make_peer_services(script, memory, tools, DataService=script.data, **others)
        await stack.enter_async_context(serving_rpcs(settings, services))
        peers = {
            name: await stack.enter_async_context(open_channel(address)) for name in ("orchestrator", "memory", "tools")
        }
        config = Config(port=0, process=ProcessSettings(drain_s=0))
        url = f"http://{await stack.enter_async_context(service.serve(config, peers))}"
        yield Suite(url, script, memory, tools)


ELSEWHERE = "77777777-7777-4777-8777-777777777777"


def gate(gate_id: str, **fields: Any) -> gates_pb2.Gate:
    given: dict[str, Any] = {
        "chat_id": CHAT,
        "agent_key": "helper",
        "kind": "approval",
        "tool_name": "pay",
        "risk": "high",
        "reason": "it costs",
        "requester": "default",
        "arguments": '{"to": "<b>Bob</b>", "amount": 12345678901234567890}',
    }
    opened_at = now_ms() - 7 * 60_000
    timing: dict[str, Any] = {"opened_at": opened_at, "expires_at": opened_at + 3_600_000}
    return gates_pb2.Gate(run_id=RUN, gate_id=gate_id, state="open", tool_id="c1", **(given | timing | fields))


def make_gates() -> list[gates_pb2.Gate]:
    """Make an approval in the user's chat, one in a colleague's that needs a second person, a question and a form."""
    of_ada = {"chat_id": ELSEWHERE, "requester": "ada", "agent_key": "writer"}
    rule = common_pb2.Answerers(any_of=["role:boss"], not_requester=True)
    question = '{"question": "Which <i>one</i>?", "choices": ["red", "blue"]}'
    return [
        gate("approval_1"),
        gate("approval_2", risk="low", tool_name="wipe", answerers=rule, **of_ada),
        gate("q_1", kind="question", tool_name="ask_human", risk=None, reason=None, arguments=question),
        gate("f_1", kind="form", tool_name="order", viewport_key="order", risk=None, reason=None, arguments="{}"),
    ]


OTHER = "44444444-4444-4444-8444-444444444444"


def make_two_runs() -> Memory:
    """Return a memory with a chat of two ended runs, as history has them, in snapshots."""
    events: list[agent_pb2.AgentDelta] = []
    for number, run_id in enumerate((RUN, OTHER), start=1):
        story = Story(f"question {number}", run_id=run_id)
        text = agent_pb2.ContentSnapshot(content_id=f"{run_id}_c_1", run_id=run_id, text=f"answer *{number}*")
        call = agent_pb2.ToolSnapshot(tool_id=f"c{number}", tool_name="weather", tool_params='{"city": "Paris"}')
        story.add(tool_snapshot=call).result(f"c{number}", "20°").add(content_snapshot=text).complete()
        events += story.events
    return Memory(events=events, older={OTHER: "an older one"})
