"""A real orchestrator over sockets, with a real memory and a scripted LlmService and ToolService."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias, cast
from urllib.parse import urlencode

import grpc
import pytest

from headrace.client import Client
from headrace.errors import HeadraceError, NotFound, ProviderAuthentication
from headrace.v1 import agent_pb2, common_pb2, llm_pb2, llm_pb2_grpc, memory_pb2, tools_pb2, tools_pb2_grpc
from services.memory.__main__ import build_audit_service, build_schedule_service, build_spend_service
from services.memory.__main__ import build_service as memory_served
from services.memory.config import Config as MemoryConfig
from services.memory.storage.engine import Engine
from services.memory.storage.files.disk import Disk
from services.memory.storage.files.engine import open_files
from services.memory.storage.postgres.connection.pool import Limits
from services.memory.storage.postgres.engine import open_postgres
from services.orchestrator.config import Config
from services.orchestrator.server import orchestrator
from services.runtime.auth.settings import AuthSettings
from services.runtime.formats import json_form
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.server import GrpcService, serving_grpc
from tests.support.issuing import key_settings
from tests.support.memory.engines import Files, Tables
from tests.support.memory.serving import CONNECTIONS_MAX, STATEMENT_TIMEOUT_S
from tests.support.order import Event, check_order
from tests.support.routed_channel import RoutedChannel
from tests.support.summaries import write_summary

OF_MEMORY = ("AuditService", "KeyService", "MemoryService", "ScheduleService", "SpendService", "WebhookService")
ANYWHERE = ServerSettings(listen="127.0.0.1:0", drain_s=0.3)
NO_DRAIN = ServerSettings(listen="127.0.0.1:0", drain_s=0.0)
SCHEDULE_LOOK_S = ERASURES_LOOK_S = 0.2
PARK_AFTER_S = 5.0
TEST_TIMEOUT_S = 600.0
"""Ends what hangs; some tests start the orchestrator a dozen times, slowly on a busy machine."""

MODEL = {"providerKey": "scripted", "model": "m"}
REACT = {"mode": "REACT", "modelConfig": MODEL, "toolConfig": {"backends": ["look", "slow"]}, "react": {}}
ONESHOT = {"mode": "ONESHOT", "modelConfig": MODEL, "plain": {}}

Step: TypeAlias = llm_pb2.LlmDelta | HeadraceError | float | asyncio.Barrier | str
"""A delta to send, an error to raise, seconds to wait, a meeting with other calls, or BREAK."""

ToolStep: TypeAlias = tools_pb2.ToolDelta | HeadraceError | float | str

BREAK = "break"
"""The service goes away here."""

OnAppend: TypeAlias = Callable[[memory_pb2.AppendRequest], Awaitable[None]]


def content(*texts: str) -> list[Step]:
    return [llm_pb2.LlmDelta(content=text) for text in texts]


def reasoning(*texts: str) -> list[Step]:
    return [llm_pb2.LlmDelta(reasoning=text) for text in texts]


def call(name: str, arguments: str = "{}", *, index: int = 0, call_id: str = "call_1") -> list[Step]:
    half = len(arguments) // 2
    first = llm_pb2.ToolCallDelta(index=index, id=call_id, name=name, arguments=arguments[:half])
    rest = llm_pb2.ToolCallDelta(index=index, arguments=arguments[half:])
    return [llm_pb2.LlmDelta(tool_call=first), llm_pb2.LlmDelta(tool_call=rest)]


def finish(reason: str = "stop") -> list[Step]:
    usage = llm_pb2.LlmDelta(usage={"input_tokens": 10, "output_tokens": 5, "model_calls": 1})  # pyright: ignore[reportArgumentType] - a dict is a message to protobuf
    return [usage, llm_pb2.LlmDelta(finish=llm_pb2.LlmFinish(reason=reason))]


def summary(text: str = "They spoke of the weather.") -> list[Step]:
    """What a model writes that is asked for a summary."""
    return [*content(write_summary(text)), *finish()]


_TIME = re.compile(r"(<system_reminder>\n)Current time: .* UTC\n")


def hide_time(request: llm_pb2.ChatRequest) -> llm_pb2.ChatRequest:
    """Return a request without the time at its end, which would be in the way of most tests."""
    shown = llm_pb2.ChatRequest()
    shown.CopyFrom(request)
    last = shown.messages[-1]
    reminder = last.content[-1] if last.content else llm_pb2.ContentPart()
    if _TIME.match(reminder.text):
        reminder.text = _TIME.sub(r"\1", reminder.text)
        if reminder.text == "<system_reminder>\n</system_reminder>":
            del last.content[-1]
        if not last.content:
            del shown.messages[-1]
    return shown


class ScriptedLlm(llm_pb2_grpc.LlmServiceServicer):
    """Plays one list of steps for each call, the last one again and again; keeps the requests.

    What is asked beside the turns (summaries, insights) has steps and requests of its own, by stage.
    """

    def __init__(self, *turns: list[Step]) -> None:
        self.turns = list(turns)
        self.reply: Callable[[llm_pb2.ChatRequest], list[Step]] | None = None
        """What is played instead, where the order of requests is not fixed."""
        self.requests: list[llm_pb2.ChatRequest] = []
        """Without the time."""
        self.raw_requests: list[llm_pb2.ChatRequest] = []
        self.aside: dict[str, list[Step]] = {"compact": summary()}
        self.aside_requests: list[llm_pb2.ChatRequest] = []
        self.models: list[llm_pb2.ModelInfo] | HeadraceError = []
        self.models_asked = 0
        self.embedded: list[llm_pb2.EmbedResponse | HeadraceError] = [
            llm_pb2.EmbedResponse(provider_key="p", model="e", embeddings=[llm_pb2.Embedding(vector=b"12345678")])
        ]
        """What Embed gives in turn, the last one again and again."""
        self.embed_requests: list[llm_pb2.EmbedRequest] = []
        self.embedding = asyncio.Event()
        """Awaited by each Embed."""
        self.embedding.set()
        self.open = 0

    async def ListModels(self, request: llm_pb2.ListModelsRequest, context: Any) -> llm_pb2.ListModelsResponse:
        self.models_asked += 1
        if isinstance(self.models, HeadraceError):
            raise self.models
        models = [info for info in self.models if info.model == request.model]
        return llm_pb2.ListModelsResponse(models=models)

    async def ListProviders(self, request: llm_pb2.ListProvidersRequest, context: Any) -> llm_pb2.ListProvidersResponse:
        return llm_pb2.ListProvidersResponse(providers=[llm_pb2.ProviderHealth(provider_key="scripted")])

    async def Embed(self, request: llm_pb2.EmbedRequest, context: Any) -> llm_pb2.EmbedResponse:
        self.embed_requests.append(request)
        await self.embedding.wait()
        reply = self.embedded.pop(0) if len(self.embedded) > 1 else self.embedded[0]
        if isinstance(reply, HeadraceError):
            raise reply
        return reply

    async def StreamChat(self, request: llm_pb2.ChatRequest, context: Any) -> AsyncGenerator[llm_pb2.LlmDelta]:
        if request.stage in self.aside:
            steps = self.aside[request.stage]
            self.aside_requests.append(request)
        else:
            self.raw_requests.append(request)
            request = hide_time(request)
            steps = self.reply(request) if self.reply else self.turns[min(len(self.requests), len(self.turns) - 1)]
            self.requests.append(request)
        self.open += 1
        try:
            yield llm_pb2.LlmDelta(started=llm_pb2.LlmStarted(provider="scripted", model="m", attempt=1))
            for step in steps:
                if isinstance(step, HeadraceError):
                    raise step
                if isinstance(step, (int, float)):
                    await asyncio.sleep(step)
                elif isinstance(step, asyncio.Barrier):
                    await step.wait()
                elif isinstance(step, str):
                    # Without details, as the end of a connection is seen.
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
                else:
                    yield step
        finally:
            self.open -= 1


class ScriptedTools(tools_pb2_grpc.ToolServiceServicer):
    """Two tools: `look` answers at once, `slow` says something and then waits to be stopped. Tests add others, and
    what they do at each attempt: deltas to send, seconds to wait, an error to raise, or BREAK.
    """

    def __init__(self) -> None:
        self.tools = [tools_pb2.Tool(name=name, parameters="{}", kind="backend") for name in ("look", "slow")]
        self.plays: dict[str, list[list[ToolStep]]] = {}
        self.effects = [tools_pb2.CheckEffectResponse(state="unknown")]
        self.checked: list[str] = []
        self.listing: Callable[[], Awaitable[None]] = nothing
        """Awaited by each ListTools."""
        self.breaking: set[str] = set()
        """RPCs of which the next call breaks."""
        self.skills: list[tools_pb2.Skill] = []
        self.linked: list[str] = []
        self.requests: list[tools_pb2.ExecuteRequest] = []
        self.open = 0
        self.delay_s = 0.0
        self.outcome = True
        self.result_chars = 0
        """Of what is seen; 0: as it comes."""
        self.files: dict[str, bytes] = {}
        """Of every workspace."""
        self.lists_files = True
        self.upload_error: HeadraceError | None = None
        self.error: HeadraceError | None = None
        self.execute: Callable[[tools_pb2.ExecuteRequest], AsyncGenerator[tools_pb2.ToolDelta]] | None = None
        self.check: Callable[[str], tools_pb2.CheckEffectResponse] | None = None
        """What is done instead, by a world of a test's own."""

    async def _break(self, name: str, context: Any) -> None:
        if name in self.breaking:
            self.breaking.remove(name)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")

    async def ListTools(self, request: tools_pb2.ListToolsRequest, context: Any) -> tools_pb2.ListToolsResponse:
        await self._break("ListTools", context)
        await self.listing()
        return tools_pb2.ListToolsResponse(
            tools=[tool for tool in self.tools if not request.names or tool.name in request.names]
        )

    async def CheckEffect(self, request: tools_pb2.CheckEffectRequest, context: Any) -> tools_pb2.CheckEffectResponse:
        self.checked.append(request.effect_key)
        if self.check is not None:
            return self.check(request.effect_key)
        return self.effects[min(len(self.checked), len(self.effects)) - 1]

    async def ListSkills(self, request: tools_pb2.ListSkillsRequest, context: Any) -> tools_pb2.ListSkillsResponse:
        await self._break("ListSkills", context)
        return tools_pb2.ListSkillsResponse(skills=self.skills)

    async def LinkSkill(self, request: tools_pb2.LinkSkillRequest, context: Any) -> tools_pb2.LinkSkillResponse:
        await self._break("LinkSkill", context)
        self.linked.append(request.skill_id)
        if request.skill_id == "broken":
            raise ProviderAuthentication("its dependencies cannot be installed")
        folder = f"skills/{request.skill_id}"
        interpreter = f"{folder}/python" if request.skill_id == "chart" else ""
        return tools_pb2.LinkSkillResponse(path=f"{folder}/SKILL.md", interpreter=interpreter)

    async def Execute(self, request: tools_pb2.ExecuteRequest, context: Any) -> AsyncGenerator[tools_pb2.ToolDelta]:
        self.requests.append(request)
        self.open += 1
        try:
            if self.error is not None:
                raise self.error
            if self.execute is not None:
                async with aclosing(self.execute(request)) as deltas:
                    async for delta in deltas:
                        yield delta
                return
            if plays := self.plays.get(request.tool_name):
                for step in plays.pop(0) if len(plays) > 1 else plays[0]:
                    if step == BREAK:
                        # Without details, as the end of a connection is seen.
                        await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
                    elif isinstance(step, HeadraceError):
                        raise step
                    elif isinstance(step, tools_pb2.ToolDelta):
                        yield step
                    else:
                        await asyncio.sleep(float(step))
                return
            yield tools_pb2.ToolDelta(output=tools_pb2.ToolOutputDelta(stream="stdout", delta="looking\n"))
            await asyncio.sleep(3600 if request.tool_name == "slow" else self.delay_s)
            result = f"seen {request.arguments}".ljust(self.result_chars, "·")
            outcome = tools_pb2.ToolOutcome(ok=True, result=result, tool_params=request.arguments)
            if self.outcome:
                yield tools_pb2.ToolDelta(result=outcome)
        finally:
            self.open -= 1

    async def ListFiles(self, request: tools_pb2.ListFilesRequest, context: Any) -> tools_pb2.ListFilesResponse:
        if not self.lists_files:
            raise NotImplementedError
        return tools_pb2.ListFilesResponse(files=[tools_pb2.FileInfo(path=path) for path in sorted(self.files)])

    async def ReadFile(
        self, request: tools_pb2.ReadFileRequest, context: Any
    ) -> AsyncGenerator[tools_pb2.ReadFileResponse]:
        if "ReadFile" in self.breaking:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "too late")
        if request.path not in self.files:
            raise NotFound("no such file")
        data = self.files[request.path]
        yield tools_pb2.ReadFileResponse(info=tools_pb2.FileInfo(path=request.path, size_bytes=len(data)))
        yield tools_pb2.ReadFileResponse(data=data)

    async def UploadFile(
        self, request_iterator: AsyncIterator[tools_pb2.UploadFileRequest], context: Any
    ) -> tools_pb2.UploadFileResponse:
        start, data = tools_pb2.UploadStart(), b""
        async for piece in request_iterator:
            start.MergeFrom(piece.start)
            data += piece.data
        if self.upload_error is not None:
            raise self.upload_error
        path = f"{start.folder}/{start.name}"
        self.files[path] = data
        url = "/api/resource?" + urlencode({"chatId": start.chat_id, "path": path})
        reference = common_pb2.Reference(name=start.name, url=url, size_bytes=len(data), mime_type="image/png")
        return tools_pb2.UploadFileResponse(chat_id=start.chat_id, reference=reference)


class WatchedMemory:
    """The real memory; whatever a test puts in `before` and `after` is awaited around each Append."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.before: OnAppend = pass_on
        self.after: OnAppend = pass_on
        self.before_release: Callable[[memory_pb2.ReleaseLeaseRequest], Awaitable[None]] = pass_on
        self.before_acquire: Callable[[memory_pb2.AcquireLeaseRequest], Awaitable[None]] = pass_on
        self.context_error: HeadraceError | None = None
        self.loads: list[memory_pb2.LoadContextRequest] = []
        self.compaction: list[memory_pb2.CompactDelta | HeadraceError] = []
        """What Compact says in place of the real one; empty: the real one."""
        self.compact_requests: list[memory_pb2.CompactRequest] = []
        self.keeps_versions = True
        """False: it is of an earlier version, whose runs are pinned to nothing."""
        self.versions: list[memory_pb2.PutAgentVersionRequest] = []
        self.titles: list[memory_pb2.UpdateChatResponse] = []
        """What each UpdateChat was answered."""
        self.taken_back: set[str] = set()
        """Runs whose end a database has shown once, before a fail-over took it back."""

    def __getattr__(self, rpc: str) -> Any:
        return getattr(self._real, rpc)

    async def Append(self, request: memory_pb2.AppendRequest, context: Any) -> memory_pb2.AppendResponse:
        await self.before(request)
        answer = await self._real.Append(request, context)
        await self.after(request)
        return answer

    async def BeginRun(self, request: memory_pb2.BeginRunRequest, context: Any) -> memory_pb2.BeginRunResponse:
        if request.HasField("context"):
            self.loads.append(request.context)
            if self.context_error is not None:
                request.ClearField("context")  # it is asked for once more, and fails then
        await self.before(request.append)
        answer = await self._real.BeginRun(request, context)
        await self.after(request.append)
        return answer

    async def AcquireLease(
        self, request: memory_pb2.AcquireLeaseRequest, context: Any
    ) -> memory_pb2.AcquireLeaseResponse:
        await self.before_acquire(request)
        return await self._real.AcquireLease(request, context)

    async def ReleaseLease(
        self, request: memory_pb2.ReleaseLeaseRequest, context: Any
    ) -> memory_pb2.ReleaseLeaseResponse:
        await self.before_release(request)
        return await self._real.ReleaseLease(request, context)

    async def PutAgentVersion(
        self, request: memory_pb2.PutAgentVersionRequest, context: Any
    ) -> memory_pb2.PutAgentVersionResponse:
        self.versions.append(request)
        if not self.keeps_versions:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not here")
        return await self._real.PutAgentVersion(request, context)

    async def UpdateChat(self, request: memory_pb2.UpdateChatRequest, context: Any) -> memory_pb2.UpdateChatResponse:
        answer = await self._real.UpdateChat(request, context)
        self.titles.append(answer)
        return answer

    async def ListUnfinishedRuns(
        self, request: memory_pb2.ListUnfinishedRunsRequest, context: Any
    ) -> memory_pb2.ListUnfinishedRunsResponse:
        if request.run_id in self.taken_back:
            self.taken_back.discard(request.run_id)
            return memory_pb2.ListUnfinishedRunsResponse()
        return await self._real.ListUnfinishedRuns(request, context)

    async def LoadContext(self, request: memory_pb2.LoadContextRequest, context: Any) -> memory_pb2.LoadContextResponse:
        self.loads.append(request)
        if self.context_error is not None:
            raise self.context_error
        return await self._real.LoadContext(request, context)

    async def Compact(
        self, request: memory_pb2.CompactRequest, context: Any
    ) -> AsyncGenerator[memory_pb2.CompactDelta]:
        self.compact_requests.append(request)
        if not self.compaction:
            async with aclosing(self._real.Compact(request, context)) as deltas:
                async for delta in deltas:
                    yield delta
        for step in self.compaction:
            if isinstance(step, HeadraceError):
                raise step
            yield step


async def pass_on(request: object) -> None:
    pass


async def nothing() -> None:
    pass


@dataclass
class House:
    """A running orchestrator and what it talks to."""

    client: Client
    memory: WatchedMemory
    llm: ScriptedLlm
    tools: ScriptedTools
    agents: Path
    stop: Callable[[], Awaitable[None]]
    """Stops the orchestrator as SIGTERM does."""
    kept: Files | Tables
    """Where memory keeps the chats."""
    config: Config = field(default_factory=Config)
    """Of the orchestrator; another one with it is the same owner."""
    address: str = ""
    chat_id: str = ""
    run_ids: list[str] = field(default_factory=list[str])

    async def ask(self, message: str = "hello", agent: str = "react", **fields: Any) -> list[Event]:
        """A whole run in the house's one chat, its order checked."""
        if self.chat_id:
            fields = {"chat_id": self.chat_id} | fields
        async with self.client.ask(message, agent_key=agent, **fields) as deltas:
            events = [as_json(delta) async for delta in deltas]
        check_order(events)
        self.chat_id = next(event["chatId"] for event in events if event["type"] == "run.start")
        self.run_ids.append(events[-1]["runId"])
        return events


def as_json(delta: agent_pb2.AgentDelta) -> Event:
    sent = json_form.event(delta)
    assert sent is not None
    return json.loads(sent.json)


Open: TypeAlias = Callable[..., AbstractAsyncContextManager[House]]


@asynccontextmanager
async def _open_store(kept: Files | Tables) -> AsyncGenerator[Engine]:
    if isinstance(kept, Tables):
        async with open_postgres(kept.url, Limits(CONNECTIONS_MAX, STATEMENT_TIMEOUT_S)) as engine:
            yield engine
    else:
        with closing(Disk(kept.folder)) as disk:
            async with open_files(disk) as engine:
                yield engine


@pytest.fixture
def house(tmp_path: Path) -> Open:
    """`house(turn, turn, …, react={…})`: an orchestrator whose model plays these turns; fields change the agents."""

    @asynccontextmanager
    async def start(
        *turns: list[Step],
        before_append: OnAppend = pass_on,
        runs_max: int = 100,
        park_after_s: float = PARK_AFTER_S,
        keys: Mapping[str, str] | None = None,
        agents_precedence: str = "files",
        database_url: str = "",
        **changes: Any,
    ) -> AsyncGenerator[House]:
        """`keys` are those of tests.support.issuing.keys_file; the first is that of the house's client. With a
        `database_url` memory keeps the chats there."""
        auth = key_settings(tmp_path, **keys) if keys else AuthSettings()
        server = replace(ANYWHERE, auth=auth)
        agents = tmp_path / "agents"
        agents.mkdir(exist_ok=True)
        for key, agent in {"react": REACT | changes, "oneshot": ONESHOT}.items():
            (agents / f"{key}.json").write_text(json.dumps(agent))
        llm = ScriptedLlm(*turns)  # pyright: ignore[reportAbstractUsage] - two RPCs are asked
        tools = ScriptedTools()  # pyright: ignore[reportAbstractUsage] - four RPCs are asked
        async with asyncio.timeout(TEST_TIMEOUT_S), AsyncExitStack() as stack:
            llm_served = GrpcService("headrace.v1.LlmService", llm, llm_pb2_grpc.add_LlmServiceServicer_to_server)
            gateway = await stack.enter_async_context(serving_grpc(server, [llm_served]))
            gateway_channel = await stack.enter_async_context(open_channel(gateway.addresses[0]))
            memory_config = MemoryConfig(data_dir=tmp_path / "data")
            kept = Tables(database_url) if database_url else Files(memory_config.logs_dir)
            store = await stack.enter_async_context(_open_store(kept))
            real = memory_served(store, memory_config, llm_pb2_grpc.LlmServiceStub(gateway_channel))
            watched = WatchedMemory(real.servicer)
            watched.before = before_append
            memory = await stack.enter_async_context(
                serving_grpc(
                    replace(NO_DRAIN, auth=auth),
                    [
                        *(replace(real, servicer=watched), build_schedule_service(store)),
                        *(build_spend_service(store), build_audit_service(store)),
                    ],
                )
            )
            tools_served = GrpcService(
                "headrace.v1.ToolService", tools, tools_pb2_grpc.add_ToolServiceServicer_to_server
            )
            tool_server = await stack.enter_async_context(serving_grpc(server, [tools_served]))
            config = Config(
                server=server,
                config_dir=tmp_path,
                agents_dir=agents,
                memory_address=memory.addresses[0],
                llm_gateway_address=gateway.addresses[0],
                tools_address=tool_server.addresses[0],
                runs_max=runs_max,
                park_after_s=park_after_s,
                agents_precedence=agents_precedence,
                schedule_look_s=SCHEDULE_LOOK_S,
                erasures_look_s=ERASURES_LOOK_S,
                remote_allow="127.0.0.1",
            )
            service = await stack.enter_async_context(AsyncExitStack())
            running = await service.enter_async_context(orchestrator(config))
            memory_channel = await stack.enter_async_context(open_channel(memory.addresses[0]))
            channel = RoutedChannel(
                await stack.enter_async_context(open_channel(running.addresses[0])),
                {f"headrace.v1.{name}": memory_channel for name in OF_MEMORY},
            )
            client = await stack.enter_async_context(
                Client(channel=cast(grpc.aio.Channel, channel), token=next(iter(keys or {}), ""), reattach_s=0)
            )
            yield House(client, watched, llm, tools, agents, service.aclose, kept, config, running.addresses[0])

    return start
