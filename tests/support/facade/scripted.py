"""A facade over real sockets with scripted peers: real gRPC servers that act as a test says."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp

from headrace.errors import HeadraceError, NotFound, StaleLease
from headrace.sse import SseFrame, SseReader
from headrace.v1 import (
    agent_pb2,
    agent_pb2_grpc,
    common_pb2,
    gates_pb2,
    gates_pb2_grpc,
    limits_pb2,
    llm_pb2,
    memory_pb2,
    operator_pb2,
    operator_pb2_grpc,
    spend_pb2,
    spend_pb2_grpc,
    tools_pb2,
    tools_pb2_grpc,
)
from services.memory.audit import AuditService
from services.memory.facts.rpcs import FactRpcs, FactStore
from services.memory.keys.rpcs import KeyService
from services.memory.keys.store import KeyStore
from services.memory.schedules.rpcs import ScheduleService
from services.memory.schedules.store import ScheduleStore
from services.memory.webhooks.rpcs import WebhookService
from services.memory.webhooks.store import WebhookStore
from services.orchestrator.lifecycle.live_calls import run_list
from services.runtime.clock import now_ms
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.interceptors import Context
from services.runtime.rpc.server import GrpcService
from services.runtime.rpc.server import serving_grpc as serving_rpcs
from tests.support.contract import hears, make_services, says
from tests.support.facade.audit import make_audit_trail
from tests.support.facade.authorizations import ScriptedAuthorizations
from tests.support.facade.facts import make_fact_store
from tests.support.facade.fronts import DEFAULTS, PEERS, Front, FrontUrl, Timing, embedded
from tests.support.facade.records import (
    make_key_store,
    make_run_webhook_store,
    make_schedule_store,
    make_suspension_store,
    make_webhook_store,
)

RUN, CHAT = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
BLOCK = f"{RUN}_c_1"
USAGE = common_pb2.Usage(input_tokens=12, output_tokens=5, model_calls=2, tool_calls=1)

TENANT_RUN = operator_pb2.OperatorRun(
    run_id=RUN,
    chat_id=CHAT,
    user="ada",
    agent_key="clerk",
    state="waiting",
    began_at=1_795_000_000_000,
    model_calls=2,
    input_tokens=1200,
    output_tokens=34,
    cost_nano_usd=1_500_000,
    owner="a:7001",
)
GATE = gates_pb2.Gate(
    run_id=RUN,
    gate_id="approval_0d79ff40",
    chat_id=CHAT,
    agent_key="clerk",
    kind="approval",
    state="open",
    tool_id="call_1",
    tool_name="pay",
    risk="high",
    reason="it costs",
    requester="ada",
    opened_at=1_700_000_000_000,
    expires_at=1_700_000_300_000,
)

# Any: the stubs want every RPC implemented, by synchronous functions.
_AgentServicer: Any = agent_pb2_grpc.AgentServiceServicer
_GateServicer: Any = gates_pb2_grpc.GateServiceServicer
_MemoryServicer: Any = FactRpcs
_ToolServicer: Any = tools_pb2_grpc.ToolServiceServicer

Step: TypeAlias = agent_pb2.AgentDelta | HeadraceError | Exception | asyncio.Event | float
"""An event to send, an error to raise, something to wait for, or seconds to wait."""


def delta(seq: int, **payload: Any) -> agent_pb2.AgentDelta:
    """One event."""
    return agent_pb2.AgentDelta(seq=seq, timestamp=1_700_000_000_000 + seq, **payload)


def text(seq: int, piece: str) -> agent_pb2.AgentDelta:
    """A piece of the answer."""
    return delta(seq, content_delta=agent_pb2.ContentDelta(content_id=BLOCK, delta=piece))


def opening() -> list[Step]:
    """Return the first events of a run in a new chat."""
    query = agent_pb2.RequestQuery(request_id="q-1", chat_id=CHAT, role="user", message="hi")
    return [
        delta(1, request_query=query),
        delta(2, chat_start=agent_pb2.ChatStart(chat_id=CHAT, chat_name="hi")),
        delta(3, run_start=agent_pb2.RunStart(run_id=RUN, chat_id=CHAT, agent_key="helper")),
    ]


def complete(seq: int) -> agent_pb2.AgentDelta:
    """Return the end of a successful run."""
    return delta(seq, run_complete=agent_pb2.RunComplete(run_id=RUN, finish_reason="stop", usage=USAGE))


def answering(*pieces: str) -> list[Step]:
    """Return a whole run that answers with `pieces`."""
    steps = opening()
    steps.append(delta(4, content_start=agent_pb2.ContentStart(content_id=BLOCK, run_id=RUN)))
    steps += [text(5 + index, piece) for index, piece in enumerate(pieces)]
    seq = 5 + len(pieces)
    return [*steps, delta(seq, content_end=agent_pb2.ContentEnd(content_id=BLOCK)), complete(seq + 1)]


@dataclass
class Script(_AgentServicer, _GateServicer):
    """The scripted orchestrator: its answers, and the requests it received."""

    query: Sequence[Step] = ()
    attaches: list[Sequence[Step]] = field(default_factory=list[Sequence[Step]])
    """One for each Attach; the last one repeats."""

    run: agent_pb2.Run | None = None
    """What GetRun returns; None makes it fail like a bug of the orchestrator."""

    runs: Sequence[agent_pb2.Run] = ()
    """The runs of each chat, the oldest first."""

    vectors: Sequence[bytes] | HeadraceError = ()
    """What Embed gives."""

    publish: Sequence[str] = ()
    """The protocols by which the agent is shown."""

    refused_file: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What GetAgent's error says of the file of the agent."""

    submit_status: str = "accepted"
    """What Submit says of an answer."""

    submit_error: HeadraceError | None = None
    """What Submit fails with."""

    claim_error: HeadraceError | None = None
    """What ClaimGate fails with."""

    gate_arguments: str = '{"amount": 12345678901234567890}'
    gate_sha256: str | None = None
    exported: Sequence[str] = ()
    """Lines that ExportGates gives."""
    grants: list[gates_pb2.Grant] = field(default_factory=list[gates_pb2.Grant])
    gate_news: Sequence[gates_pb2.WatchGatesResponse | HeadraceError] = ()
    """What WatchGates tells."""

    waits_for_gates: bool = True
    """Whether WatchGates goes on after that, as it does while its service lives."""

    follows: list[Sequence[agent_pb2.FollowDelta | HeadraceError]] = field(
        default_factory=list[Sequence[agent_pb2.FollowDelta | HeadraceError]]
    )
    """What each call of Follow gives; the last one then waits."""

    requests: list[Any] = field(default_factory=list[Any])
    metadata: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    sent: int = 0
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    """A stream's generator was closed."""

    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    submitted: asyncio.Event = field(default_factory=asyncio.Event)

    def hear(self, request: Any, context: Context) -> None:
        self.requests.append(request)
        self.heard.set()
        self.metadata.append({key: str(value) for key, value in context.invocation_metadata() or ()})

    async def _play(self, steps: Sequence[Step]) -> AsyncGenerator[agent_pb2.AgentDelta]:
        try:
            for step in steps:
                match step:
                    case Exception():
                        raise step
                    case asyncio.Event():
                        await step.wait()
                    case float():
                        await asyncio.sleep(step)
                    case agent_pb2.AgentDelta():
                        self.sent += 1
                        yield step
                    case int():
                        raise AssertionError("seconds are a float")
        finally:
            self.closed.set()

    async def Query(self, request: Any, context: Context) -> AsyncGenerator[agent_pb2.AgentDelta]:
        self.hear(request, context)
        async for event in self._play(self.query):
            yield event

    async def Attach(self, request: Any, context: Context) -> AsyncGenerator[agent_pb2.AgentDelta]:
        self.hear(request, context)
        steps = self.attaches.pop(0) if len(self.attaches) > 1 else self.attaches[0]
        async for event in self._play(steps):
            yield event

    async def Submit(self, request: Any, context: Context) -> agent_pb2.SubmitResponse:
        self.hear(request, context)
        self.submitted.set()
        if self.submit_error is not None:
            raise self.submit_error
        is_taken = self.submit_status == "accepted"
        return agent_pb2.SubmitResponse(accepted=is_taken, status=self.submit_status, run_id=request.run_id)

    ListGates = hears(lambda _, __: gates_pb2.ListGatesResponse(gates=[GATE]))

    async def WatchGates(self, request: Any, context: Context) -> AsyncGenerator[gates_pb2.WatchGatesResponse]:
        self.hear(request, context)
        try:
            for news in self.gate_news:
                if isinstance(news, Exception):
                    raise news
                yield news
            if self.waits_for_gates:
                await asyncio.Event().wait()
        finally:
            self.closed.set()

    async def Follow(self, request: Any, context: Context) -> AsyncGenerator[agent_pb2.FollowDelta]:
        self.hear(request, context)
        for delta in self.follows.pop(0):
            if isinstance(delta, Exception):
                raise delta
            yield delta
        if not self.follows:
            await asyncio.Event().wait()

    async def GetGate(self, request: Any, context: Context) -> gates_pb2.GetGateResponse:
        self.hear(request, context)
        gate = gates_pb2.Gate(arguments=self.gate_arguments, arguments_sha256=self.gate_sha256)
        gate.MergeFrom(GATE)
        return gates_pb2.GetGateResponse(gate=gate)

    async def AnswerGate(self, request: Any, context: Context) -> gates_pb2.AnswerGateResponse:
        self.hear(request, context)
        status = "accepted" if request.gate_id == GATE.gate_id else "unmatched"
        granted = "g_1" if '"grant"' in request.payload else None
        is_taken = status == "accepted"
        return gates_pb2.AnswerGateResponse(accepted=is_taken, status=status, detail="as it is", grant_id=granted)

    async def ClaimGate(self, request: Any, context: Context) -> gates_pb2.ClaimGateResponse:
        self.hear(request, context)
        if self.claim_error is not None:
            raise self.claim_error
        until = now_ms() + (request.lease_ms or 60_000)
        return gates_pb2.ClaimGateResponse(status="claimed", claimed_by="default", claimed_until=until)

    ReleaseGate = hears(lambda _, __: gates_pb2.ReleaseGateResponse(released=True))
    DelegateGate = hears(lambda _, __: gates_pb2.DelegateGateResponse(status="delegated"))
    AskBack = hears(lambda _, __: gates_pb2.AskBackResponse(status="asked_back"))
    ListGrants = hears(lambda self, _: gates_pb2.ListGrantsResponse(grants=self.grants))

    async def ExportGates(self, request: Any, context: Context) -> AsyncGenerator[gates_pb2.ExportGatesResponse]:
        self.hear(request, context)
        for line in self.exported:
            yield gates_pb2.ExportGatesResponse(line=line)

    RevokeGrant = hears(lambda _, __: gates_pb2.RevokeGrantResponse(status="revoked"))
    Steer = hears(lambda _, request: agent_pb2.SteerResponse(run_id=request.run_id, status="accepted"))

    async def Cancel(self, request: Any, context: Context) -> agent_pb2.CancelResponse:
        self.hear(request, context)
        self.cancelled.set()
        return agent_pb2.CancelResponse(run_id=request.run_id, state="running")

    async def ListAgents(self, request: Any, context: Context) -> agent_pb2.ListAgentsResponse:
        self.hear(request, context)
        agent = agent_pb2.Agent(key="helper", name="Helper", mode="REACT", model="sim-1", tools=["weather"])
        agent.publish.extend(self.publish)
        return agent_pb2.ListAgentsResponse(agents=[agent])

    async def GetAgent(self, request: Any, context: Context) -> agent_pb2.GetAgentResponse:
        self.hear(request, context)
        raise NotFound(f"no agent {request.agent_key!r}", field="agentKey", **self.refused_file)

    async def ValidateAgent(self, request: Any, context: Context) -> agent_pb2.ValidateAgentResponse:
        self.hear(request, context)
        problem = agent_pb2.DefinitionProblem(
            field="mode", rule="Field required", is_warning="ok" in request.definition
        )
        return agent_pb2.ValidateAgentResponse(problems=[problem])

    async def ListAgentVersions(self, request: Any, context: Context) -> agent_pb2.ListAgentVersionsResponse:
        self.hear(request, context)
        newest = agent_pb2.AgentVersion(agent_key=request.agent_key, version=3, hash="ab" * 32, created_at=1_000)
        return agent_pb2.ListAgentVersionsResponse(versions=[newest])

    async def GetAgentVersion(self, request: Any, context: Context) -> agent_pb2.GetAgentVersionResponse:
        self.hear(request, context)
        version = agent_pb2.AgentVersion(agent_key=request.agent_key, version=request.version or 3)
        return agent_pb2.GetAgentVersionResponse(version=version, definition='{"agents":{}}')

    async def DiffAgentVersions(self, request: Any, context: Context) -> agent_pb2.DiffAgentVersionsResponse:
        self.hear(request, context)
        changes = [
            agent_pb2.AgentChange(path="agents.helper.name", after='"Helper"'),
            agent_pb2.AgentChange(path="tools.look", before=str(request.from_version), after=str(request.to_version)),
        ]
        return agent_pb2.DiffAgentVersionsResponse(changes=changes)

    async def ListAgentProblems(self, request: Any, context: Context) -> agent_pb2.ListAgentProblemsResponse:
        self.hear(request, context)
        problem = agent_pb2.AgentProblem(file="clerk.json", problem="mode: is required", agent_key="clerk")
        return agent_pb2.ListAgentProblemsResponse(problems=[problem])

    async def GetIdentity(self, request: Any, context: Context) -> agent_pb2.GetIdentityResponse:
        self.hear(request, context)
        return agent_pb2.GetIdentityResponse(tenant="acme", user="ada", scopes=["answer", "ask"])

    async def GetRun(self, request: Any, context: Context) -> agent_pb2.GetRunResponse:
        if self.run is None:
            raise KeyError("secret inside")
        return agent_pb2.GetRunResponse(run=self.run)

    ListRuns = says(lambda self, request: run_list.page(self.runs, request))
    GetContext = hears(lambda _, request: make_window(request.chat_id, request.agent_key or "helper"))

    async def Embed(self, request: Any, context: Context) -> llm_pb2.EmbedResponse:
        self.hear(request, context)
        if isinstance(self.vectors, HeadraceError):
            raise self.vectors
        embeddings = [llm_pb2.Embedding(vector=vector) for vector in self.vectors]
        return llm_pb2.EmbedResponse(provider_key="sim", model=request.model, embeddings=embeddings, usage=USAGE)


def make_window(chat_id: str, agent_key: str) -> agent_pb2.GetContextResponse:
    """Return a window with a summary from which messages were removed."""
    rows = [
        ("system", "shown", "", 1, 900, 0, 0),
        ("tools", "shown", "", 7, 2_600, 0, 0),
        ("summary", "shown", "", 1, 1_500, 41, 41),
        ("messages", "shown", "", 9, 1_200, 30, 52),
        ("results", "shortened", "too long for its place", 2, 3_000, 33, 50),
        ("reminder", "shown", "", 1, 100, 0, 0),
        ("messages", "summarised", "a summary replaces it", 24, 8_800, 1, 29),
        ("results", "left_out", "does not fit the model's window", 1, 40_000, 31, 31),
    ]
    return agent_pb2.GetContextResponse(
        chat_id=chat_id,
        agent_key=agent_key,
        model="sim-1",
        tokens=9_300,
        context_window_tokens=32_000,
        output_tokens=4_000,
        parts=[
            agent_pb2.ContextPart(
                kind=kind, state=state, why=why, count=count, tokens=tokens, first_n=first, last_n=last
            )
            for kind, state, why, count, tokens, first, last in rows
        ],
        compaction_due=True,
        fill_ratio=0.85,
        compaction=make_compaction(),
        chat_usage=common_pb2.Usage(input_tokens=90_000, output_tokens=4_000, model_calls=30, cost_usd=0.25),
        between_runs_usage=common_pb2.Usage(input_tokens=9_000, output_tokens=600, model_calls=1, cost_usd=0.02),
        last_input_tokens=9_000,
        last_cached_ratio=0.75,
    )


def make_compaction() -> agent_pb2.ContextCompaction:
    """Return the compaction that produced the window, made between runs."""
    return agent_pb2.ContextCompaction(
        n=41,
        trigger="auto",
        strategy="summary",
        pre_tokens=26_000,
        post_tokens=9_000,
        files_included=["plan.md"],
        receipt=agent_pb2.CompactionReceipt(
            first_line=1,
            last_line=29,
            covered_tokens=8_800,
            seen_tokens=8_000,
            unseen=[agent_pb2.LineRange(first_line=12, last_line=14)],
            model_calls=1,
            cached_ratio=0.5,
            pinned=["Intent: My boat\nis Ada."],
            usage=common_pb2.Usage(input_tokens=9_000, output_tokens=600, model_calls=1, cost_usd=0.02),
            replaced_messages=24,
            kept_messages=9,
        ),
        sections=[
            agent_pb2.ContextSection(title="Primary request and intent", tokens=1_200),
            agent_pb2.ContextSection(title="Behind the summary", tokens=300),
        ],
        is_edited=True,
        created_at=1_700_000_000_000,
    )


@dataclass
class ScriptedMemory(_MemoryServicer):
    """A memory of one chat."""

    chat: memory_pb2.GetChatResponse = field(default_factory=memory_pb2.GetChatResponse)
    deleted: list[str] = field(default_factory=list[str])
    reverted: list[memory_pb2.RevertRequest] = field(default_factory=list[memory_pb2.RevertRequest])
    state: str = "{}"
    state_version: int = 0
    state_error: HeadraceError | None = None
    """What GetState fails with."""

    state_reads: int = 0
    pinned: list[memory_pb2.PinMessageRequest] = field(default_factory=list[memory_pb2.PinMessageRequest])
    edits: list[memory_pb2.EditSummaryRequest] = field(default_factory=list[memory_pb2.EditSummaryRequest])
    schedules: ScheduleStore = field(default_factory=make_schedule_store)
    webhooks: WebhookStore = field(default_factory=make_webhook_store)
    keys: KeyStore = field(default_factory=make_key_store)
    _facts: FactStore = field(default_factory=make_fact_store)

    async def PinMessage(self, request: Any, context: Context) -> memory_pb2.PinMessageResponse:
        self.pinned.append(request)
        return memory_pb2.PinMessageResponse(n=10)

    async def ListPins(self, request: Any, context: Context) -> memory_pb2.ListPinsResponse:
        return memory_pb2.ListPinsResponse(pins=[memory_pb2.Pin(n=1, text="My boat\nis Ada.", run_id=RUN, role="user")])

    GetSummary = says(lambda _, __: memory_pb2.GetSummaryResponse(n=41, text="of the weather", retained_from_n=30))

    async def EditSummary(self, request: Any, context: Context) -> memory_pb2.EditSummaryResponse:
        self.edits.append(request)
        return memory_pb2.EditSummaryResponse(n=11)

    async def ListCheckpoints(self, request: Any, context: Context) -> memory_pb2.ListCheckpointsResponse:
        at = 1_700_000_000_000
        steps = [
            memory_pb2.Checkpoint(
                checkpoint_id=1, n=2, run_id=RUN, kind="step", tools=["weather", "bash"], created_at=at
            )
        ]
        if request.kind == "step":
            answer = memory_pb2.Checkpoint(checkpoint_id=1, n=3, run_id=RUN, kind="step", text="So.", created_at=at)
            return memory_pb2.ListCheckpointsResponse(checkpoints=[answer, *steps])
        queries = [
            memory_pb2.Checkpoint(checkpoint_id=2, n=4, run_id=RUN, kind="query", text="and\nnow?", created_at=at),
            memory_pb2.Checkpoint(checkpoint_id=0, n=1, run_id=RUN, kind="query", text="水车 怎么做", created_at=at),
        ]
        found = queries if request.kind == "query" else [queries[0], *steps, queries[1]]
        return memory_pb2.ListCheckpointsResponse(checkpoints=found)

    async def Revert(self, request: Any, context: Context) -> memory_pb2.RevertResponse:
        if request.checkpoint_id > 2:
            raise NotFound(f"chat {CHAT} has no checkpoint {request.checkpoint_id}; it has 3")
        self.reverted.append(request)
        return memory_pb2.RevertResponse(n=9)

    async def GetState(self, request: Any, context: Context) -> memory_pb2.GetStateResponse:
        self.state_reads += 1
        if self.state_error is not None:
            raise self.state_error
        return memory_pb2.GetStateResponse(version=self.state_version, state=self.state)

    async def UpdateState(self, request: Any, context: Context) -> memory_pb2.UpdateStateResponse:
        if request.expected_version != self.state_version:
            raise StaleLease(f"the state is at version {self.state_version} now; get it and change it again")
        self.state, self.state_version = request.state, self.state_version + 1
        return memory_pb2.UpdateStateResponse(version=self.state_version)

    async def ListChats(self, request: Any, context: Context) -> memory_pb2.ListChatsResponse:
        chat = memory_pb2.Chat(
            chat_id=CHAT,
            chat_name="水车 怎么",
            title="水车 怎么 转",
            first_agent_key="helper",
            created_at=1_700_000_000_000,
            updated_at=1_700_000_060_000,
        )
        return memory_pb2.ListChatsResponse(chats=[chat], next_page_token="p2")

    GetChat = says(lambda self, _: self.chat)

    async def ForkChat(self, request: Any, context: Context) -> memory_pb2.ForkChatResponse:
        return memory_pb2.ForkChatResponse(chat_id=f"fork of {request.chat_id} {request.run_id}")

    ShareChat = says(lambda _, request: memory_pb2.ShareChatResponse(n=6, shared_with=request.shared_with))
    UpdateChat = says(lambda _, request: memory_pb2.UpdateChatResponse(n=5, title=request.title))

    async def Search(self, request: Any, context: Context) -> memory_pb2.SearchResponse:
        excerpt = f"{request.query} {request.scope} {request.limit}"
        return memory_pb2.SearchResponse(
            hits=[memory_pb2.SearchHit(chat_id=CHAT, title="水车 怎么 转", excerpt=excerpt)]
        )

    async def DeleteChat(self, request: Any, context: Context) -> memory_pb2.DeleteChatResponse:
        self.deleted.append(request.chat_id)
        return memory_pb2.DeleteChatResponse()


@dataclass
class ScriptedTools(ScriptedAuthorizations, _ToolServicer):
    """Uploads, and authorizations."""

    uploaded: list[tuple[tools_pb2.UploadStart, bytes]] = field(
        default_factory=list[tuple[tools_pb2.UploadStart, bytes]]
    )
    refused: HeadraceError | None = None
    """What UploadFile raises."""

    listed: Sequence[tools_pb2.Tool] = ()

    async def ListTools(self, request: Any, context: Context) -> tools_pb2.ListToolsResponse:
        return tools_pb2.ListToolsResponse(tools=self.listed)

    async def ReadFile(self, request: Any, context: Context) -> AsyncGenerator[tools_pb2.ReadFileResponse]:
        for start, data in self.uploaded:
            if request.path == f"uploads/{start.name}" and request.chat_id == CHAT:
                yield tools_pb2.ReadFileResponse(info=tools_pb2.FileInfo(path=request.path, size_bytes=len(data)))
                yield tools_pb2.ReadFileResponse(data=data[: request.length or len(data)])
                return
        raise NotFound("there is no such file")

    async def UploadFile(self, pieces: Any, context: Context) -> tools_pb2.UploadFileResponse:
        start, data = tools_pb2.UploadStart(), b""
        async for piece in pieces:
            if piece.HasField("start"):
                start = piece.start
            data += piece.data
        if self.refused is not None:
            raise self.refused
        self.uploaded.append((start, data))
        path = f"uploads/{start.name}"
        reference = common_pb2.Reference(id=f"file_{len(self.uploaded)}", name=start.name, meta=f'{{"path":"{path}"}}')
        return tools_pb2.UploadFileResponse(chat_id=start.chat_id or CHAT, reference=reference)


@dataclass(frozen=True)
class Suite:
    """A facade and the scripts behind it."""

    url: FrontUrl
    script: Script
    memory: ScriptedMemory
    tools: ScriptedTools
    http: aiohttp.ClientSession
    """Its base is `url`."""


@asynccontextmanager
async def suite(
    folder: Path, script: Script | None = None, *, front: Front = embedded, timing: Timing = DEFAULTS
) -> AsyncGenerator[Suite]:
    """Run a facade inside the block; `folder` is for its peers' sockets. A long timeout ends it."""
    script, memory, tools = script or Script(), ScriptedMemory(), ScriptedTools()
    address = f"unix:{folder}/peer.sock"
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(900))
        settings = ServerSettings(listen=address, drain_s=0)
        await stack.enter_async_context(serving_rpcs(settings, make_peer_services(script, memory, tools)))
        url = await stack.enter_async_context(front(dict.fromkeys(PEERS, address), timing))
        http = await stack.enter_async_context(aiohttp.ClientSession(url))
        yield Suite(url, script, memory, tools, http)


class ScriptedSpend(spend_pb2_grpc.SpendServiceServicer):
    """Two rows, whatever is asked for."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def GetUsage(self, request: spend_pb2.GetUsageRequest, context: Any) -> spend_pb2.GetUsageResponse:
        self._script.requests.append(request)
        sums: dict[str, Any] = {"input_tokens": 1200, "output_tokens": 34, "cached_tokens": 1000, "model_calls": 2}
        rows = [
            spend_pb2.UsageRow(day="2026-11-22", agent_key="writer", cost_nano_usd=1_500_000_000, **sums),
            spend_pb2.UsageRow(day="2026-11-23", agent_key="clerk", cost_nano_usd=4_000_000, **sums),
        ]
        total = spend_pb2.UsageRow(
            input_tokens=2400, output_tokens=68, cached_tokens=2000, model_calls=4, cost_nano_usd=1_504_000_000
        )
        return spend_pb2.GetUsageResponse(
            rows=rows, total=total, from_day=request.from_day or "2026-10-25", to_day=request.to_day or "2026-11-23"
        )


LIMITS = [
    limits_pb2.Limit(
        name="budget_money",
        subject="daily",
        kind="spend",
        unit="nano_usd",
        per="user",
        source="budgets.yaml",
        source_name="daily",
        value=2_500_000_000,
        used=2_500_000_000,
        reserved=500_000_000,
        is_full=True,
        opens_at=1_795_000_000_000,
        service="memory",
    ),
    limits_pb2.Limit(
        name="tenant_runs",
        kind="concurrency",
        unit="chats",
        per="tenant",
        source="settings",
        source_name="HEADRACE_ORCHESTRATOR_TENANT_RUNS_MAX",
        value=20,
        used=3,
        service="orchestrator",
        is_per_replica=True,
    ),
    limits_pb2.Limit(
        name="message_bytes",
        kind="size",
        unit="bytes",
        per="call",
        source="fixed",
        value=4_194_304,
        service="orchestrator",
    ),
    limits_pb2.Limit(
        name="model_breaker",
        subject="prov/idle",
        kind="breaker",
        unit="calls",
        per="tenant",
        source="fixed",
        breaker="half-open",
        service="llm_gateway",
    ),
]


class ScriptedOperator(operator_pb2_grpc.OperatorServiceServicer):
    """One run, one provider, one replica, whatever is asked for."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def ListRuns(self, request: Any, context: Any) -> operator_pb2.OperatorListRunsResponse:
        self._script.requests.append(request)
        return operator_pb2.OperatorListRunsResponse(runs=[TENANT_RUN], next_page_token="p2")

    async def GetRun(self, request: Any, context: Any) -> operator_pb2.OperatorGetRunResponse:
        self._script.requests.append(request)
        event = agent_pb2.AgentDelta(seq=3, timestamp=1, content_start=agent_pb2.ContentStart(content_id="c_1"))
        return operator_pb2.OperatorGetRunResponse(run=TENANT_RUN, events=[event], without_content=True)

    async def CancelRuns(self, request: Any, context: Any) -> operator_pb2.CancelRunsResponse:
        self._script.requests.append(request)
        ends = [operator_pb2.CancelledRun(run_id=run_id, status="cancelling") for run_id in request.run_ids or [RUN]]
        ends[-1].status, ends[-1].reason = "failed", "OVERLOADED"
        return operator_pb2.CancelRunsResponse(runs=ends, next_page_token="" if request.run_ids else "p2")

    async def ListProviders(self, request: llm_pb2.ListProvidersRequest, context: Any) -> llm_pb2.ListProvidersResponse:
        models = [
            llm_pb2.ModelHealth(
                model="fine",
                breaker="closed",
                attempts=12,
                error_ratio=0.25,
                first_delta_ms=420,
                left_out=["temperature"],
            ),
            llm_pb2.ModelHealth(model="idle", breaker="open", blocked_ms=5000),
        ]
        return llm_pb2.ListProvidersResponse(
            providers=[
                llm_pb2.ProviderHealth(
                    provider_key="prov", models=models, running=2, waiting=1, concurrency=4, replicas=1
                )
            ]
        )

    async def GetLimits(self, request: limits_pb2.GetLimitsRequest, context: Any) -> limits_pb2.GetLimitsResponse:
        self._script.requests.append(request)
        return limits_pb2.GetLimitsResponse(limits=LIMITS, missing=["tools"])

    async def ListReplicas(self, request: Any, context: Any) -> operator_pb2.ListReplicasResponse:
        replica = operator_pb2.Replica(address="a:7001", runs=2, lease_expires_at=1_795_000_000_000, is_alive=True)
        return operator_pb2.ListReplicasResponse(
            replicas=[replica, operator_pb2.Replica(address="b:7001", is_this=True)]
        )


def make_peer_services(
    script: Script, memory: ScriptedMemory, tools: ScriptedTools | None = None, **others: Any
) -> list[GrpcService]:
    """Return the scripted peer's services; `others` are added to these or replace them."""
    audit = make_audit_trail()
    services: dict[str, Any] = {
        "AgentService": script,
        "GateService": script,
        "MemoryService": memory,
        "OperatorService": ScriptedOperator(script),
        "ScheduleService": ScheduleService(memory.schedules, audit),
        "SpendService": ScriptedSpend(script),
        "ToolService": tools or ScriptedTools(),
        "KeyService": KeyService(memory.keys, make_suspension_store(), audit),
        "AuditService": AuditService(audit),
        "WebhookService": WebhookService(memory.webhooks, make_run_webhook_store(), audit),
    }
    return make_services(**(services | others))


async def read_all_frames(response: aiohttp.ClientResponse) -> list[SseFrame]:
    """Read all frames of a stream, to its end."""
    reader, frames = SseReader(), list[SseFrame]()
    async for chunk in response.content.iter_any():
        frames += reader.feed(chunk)
    return frames + list(reader.finish())
