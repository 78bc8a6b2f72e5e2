"""The whole suite in one process with a scripted model: services that authenticate each other by the suite's token, and
two tenants with an API key each.
"""

import asyncio
import json
import math
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from headrace import contract
from headrace.client import Client
from headrace.errors import CredentialEnded, Unauthenticated, from_rpc_error
from headrace.v1 import agent_pb2, keys_pb2, llm_pb2, llm_pb2_grpc
from services.facade import service as facade
from services.facade.config import Config as FacadeConfig
from services.memory.__main__ import (
    build_audit_service,
    build_data_service,
    build_key_service,
    build_schedule_service,
    build_spend_service,
    build_webhook_service,
    following_own_keys,
)
from services.memory.__main__ import build_service as memory_served
from services.memory.config import Config as MemoryConfig
from services.memory.data.erasures import Refusals
from services.memory.storage.files.disk import Disk
from services.memory.storage.files.engine import open_files
from services.orchestrator.config import Config as OrchestratorConfig
from services.orchestrator.server import orchestrator
from services.runtime.auth.callers import CALLERS, CLIENT, FACADE, ORCHESTRATOR
from services.runtime.auth.identity import ALL_SCOPES, Identity, acting_as
from services.runtime.auth.settings import AuthSettings
from services.runtime.process.config import ProcessSettings, ServerSettings
from services.runtime.rpc.channels import CallerMetadata, build_caller_metadata, open_channel
from services.runtime.rpc.server import GrpcService, serving_grpc
from services.tools.catalogue.catalogue import Catalogue
from services.tools.config import Config as ToolsConfig
from services.tools.sandbox.tiers import Sandbox
from services.tools.server import tool_server
from tests.support.facade.fronts import PEERS, Timing, gateway
from tests.support.issuing import key_settings
from tests.support.orchestrator.scripted_llm import ScriptedLlm
from tests.support.orchestrator.steps import content, finish

ADA, BOB = (Identity(*names, scopes=ALL_SCOPES) for names in (("acme", "ada"), ("globex", "bob")))
KEYS = {ADA: "key-of-ada", BOB: "key-of-bob"}
OLGA = Identity("acme", "olga", scopes=ALL_SCOPES)
KEY_OF_OLGA = "key-of-olga"
"""Ada's tenant has a second admin, who confirms the keys that Ada makes."""

SCOPES = ",".join(sorted(ALL_SCOPES))
"""Each is good for everything, in its own tenant."""

MODEL = {"providerKey": "scripted", "model": "m"}
AGENTS: dict[str, dict[str, Any]] = {
    "plain": {
        "publish": ["a2a", "ag-ui", "mcp"],
        "mode": "ONESHOT",
        "modelConfig": MODEL,
        "plain": {"systemPrompt": "Answer."},
    }
}
SLOW = "take your time"
"""A question whose answer takes for ever."""

SECRETS_KEY = "a key that nobody can guess, of 32 or more"
"""With which tools keeps tokens of MCP servers."""

TIMEOUT_S = 200.0


@dataclass(frozen=True)
class Outcome:
    """The outcome of a call."""

    code: str
    reason: str = ""
    message: str = ""
    reply: Any = None
    """The answer, or the messages of a stream."""


@dataclass
class TenantSuite:
    """The running suite."""

    channels: Mapping[str, grpc.aio.Channel]
    """Channels without credentials, by the service's proto name."""
    trusted: Mapping[str, grpc.aio.Channel]
    """The same with the orchestrator's credentials."""
    addresses: Mapping[str, str]
    """Addresses of the suite's services."""
    url: str
    """Of the facade."""
    http: aiohttp.ClientSession
    settings: AuthSettings
    shown: CallerMetadata
    """By which the orchestrator proves itself."""
    llm: ScriptedLlm
    folder: Path

    async def call(
        self, rpc: MethodDescriptor, who: Identity | None, requests: Sequence[Message], *, as_client: bool | None = None
    ) -> Outcome:
        """Call an RPC for `who` as whoever may call it does; None: without a credential, or an identity."""
        method = path(rpc)
        is_client = is_public(rpc) if as_client is None else as_client
        channel = (self.channels if is_client else self.trusted)[rpc.containing_service.name]
        credentials = (("x-api-key", KEYS[who]),) if is_client and who is not None else ()
        kinds = (GetMessageClass(rpc.input_type).SerializeToString, GetMessageClass(rpc.output_type).FromString)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                with acting_as(None if is_client else who):
                    return Outcome("OK", reply=await _answer(channel, method, rpc, kinds, requests, credentials))
        except grpc.aio.AioRpcError as error:
            if (known := from_rpc_error(error)) is None:
                raise
            return Outcome(error.code().name, known.reason, known.message)

    def connect(self, token: str, address: str = "") -> Client:
        """Make a client of all services, with the orchestrator at another address if that is given."""
        memory, tools = (self.addresses[name] for name in ("memory", "tools"))
        return Client(
            address or self.addresses["orchestrator"], memory_address=memory, tools_address=tools, token=token
        )

    async def make_key(self, name: str, user: str, **fields: Any) -> keys_pb2.CreateKeyResponse:
        """Have Ada make a key, and Olga confirm it."""
        async with self.connect(KEYS[ADA]) as ada, self.connect(KEY_OF_OLGA) as olga:
            created = await ada.create_key(name, user, **fields)
            if created.key.state == "unconfirmed":
                created.key.CopyFrom((await olga.confirm_key(created.key.key_id)).key)
        return created

    async def ask(self, who: Identity, message: str) -> tuple[str, str]:
        """Chat and run of a question, which is answered to the end, unless it is a slow one."""
        rpc = agent_pb2.DESCRIPTOR.services_by_name["AgentService"].methods_by_name["Query"]
        request = agent_pb2.QueryRequest(message=message, agent_key="plain", record=True)
        outcome = await self.call(rpc, who, [request])
        assert outcome.code == "OK", outcome
        start = next(event.run_start for event in outcome.reply if event.HasField("run_start"))
        return start.chat_id, start.run_id


ENOUGH = {"Attach": 3, "Follow": 3, "WatchChat": 1}
"""Messages after which streams are left that may have no end."""


async def _answer(
    channel: grpc.aio.Channel,
    method: str,
    rpc: MethodDescriptor,
    kinds: Any,
    requests: Sequence[Message],
    credentials: Any,
) -> Any:
    if rpc.client_streaming:
        return await channel.stream_unary(method, *kinds)(iter(requests), metadata=credentials)
    if not rpc.server_streaming:
        return await channel.unary_unary(method, *kinds)(requests[0], metadata=credentials)
    answer = channel.unary_stream(method, *kinds)(requests[0], metadata=credentials)
    events: list[Any] = []
    try:
        async for event in answer:
            events.append(event)
            # What a slow answer has said so far is enough.
            if SLOW in str(requests[0]) and event.DESCRIPTOR.name == "AgentDelta" and event.HasField("content_start"):
                break
            if len(events) >= ENOUGH.get(rpc.name, math.inf):
                break
    finally:
        answer.cancel()
    return events


def path(rpc: MethodDescriptor) -> str:
    """The RPC's name on the wire."""
    return f"/{rpc.containing_service.full_name}/{rpc.name}"


def is_public(rpc: MethodDescriptor) -> bool:
    """Return whether clients may call the RPC."""
    return CLIENT in CALLERS[path(rpc)]


def reply(request: llm_pb2.ChatRequest) -> list[Any]:
    """Return the model's answer."""
    is_slow = any(SLOW in part.text for message in request.messages[-1:] for part in message.content)
    return [*content("one "), 3600.0] if is_slow else [*content("one ", "two"), *finish()]


@asynccontextmanager
async def serving_tenants(
    folder: Path, *, runs_max: int = 100, commands_max: int = 64, **orchestrating: Any
) -> AsyncGenerator[TenantSuite]:
    """Run the suite over real sockets and a real folder."""
    for key, agent in AGENTS.items():
        (folder / "agents").mkdir(exist_ok=True)
        (folder / "agents" / f"{key}.json").write_text(json.dumps(agent))
    (folder / "tools").mkdir()
    (folder / "skills" / "letter").mkdir(parents=True)
    (folder / "skills" / "letter" / "SKILL.md").write_text(
        "---\nname: Letters\ndescription: Writes them.\n---\nWrite.\n"
    )
    auth = key_settings(
        folder, **{key: f"{who.tenant}/{who.user} staff {SCOPES}" for who, key in (KEYS | {OLGA: KEY_OF_OLGA}).items()}
    )
    auth = replace(auth, keys_poll_s=0.1)
    # peers would do for those that only services call; here clients find out that they may not.
    server = ServerSettings(listen="127.0.0.1:0", drain_s=0, auth=auth)
    llm = ScriptedLlm()  # pyright: ignore[reportAbstractUsage] - two RPCs are asked
    llm.reply = reply
    async with AsyncExitStack() as stack:
        served = GrpcService("headrace.v1.LlmService", llm, llm_pb2_grpc.add_LlmServiceServicer_to_server)
        gateway = (await stack.enter_async_context(serving_grpc(server, [served]))).addresses[0]
        memory_config = MemoryConfig(server=server, data_dir=folder / "data")
        store = await stack.enter_async_context(open_files(stack.enter_context(closing(Disk(memory_config.logs_dir)))))
        refusals = await stack.enter_async_context(Refusals(store).following())
        stores = (
            memory_served(store, memory_config, refusals=refusals),
            build_key_service(store, auth=auth),
            build_schedule_service(store, auth=auth),
            build_spend_service(store),
            build_webhook_service(store, memory_config),
            build_audit_service(store),
            build_data_service(store, refusals),
        )
        keys = await stack.enter_async_context(following_own_keys(memory_config, store))
        memory = (
            await stack.enter_async_context(serving_grpc(server, stores, keys=keys, check_call=refusals.check_call))
        ).addresses[0]
        tools_config = ToolsConfig(
            server=server,
            config_dir=folder,
            data_dir=folder / "data",
            memory_address=memory,
            secrets_key=SECRETS_KEY,
            commands_max=commands_max,
        )
        tools = await stack.enter_async_context(
            tool_server(tools_config, Sandbox("process"), Catalogue(folder / "tools"))
        )
        addresses = {"llm_gateway": gateway, "memory": memory, "tools": tools.addresses[0]}
        config = OrchestratorConfig(
            server=server,
            config_dir=folder,
            llm_gateway_address=gateway,
            memory_address=memory,
            tools_address=tools.addresses[0],
            runs_max=runs_max,
            **orchestrating,
        )
        addresses["orchestrator"] = (await stack.enter_async_context(orchestrator(config))).addresses[0]
        places = {rpc.service: addresses[rpc.server] for rpc in contract.RPCS.values()}
        channels = {name: await stack.enter_async_context(open_channel(at)) for name, at in places.items()}
        caller_metadata = build_caller_metadata(auth, ORCHESTRATOR)
        trusted = {
            name: await stack.enter_async_context(open_channel(at, caller_metadata)) for name, at in places.items()
        }
        url = await stack.enter_async_context(_facade(auth, addresses))
        http = await stack.enter_async_context(aiohttp.ClientSession(url))
        yield TenantSuite(channels, trusted, addresses, url, http, auth, caller_metadata, llm, folder)


@asynccontextmanager
async def _facade(auth: AuthSettings, addresses: Mapping[str, str]) -> AsyncGenerator[str]:
    async with AsyncExitStack() as stack:
        caller_metadata = build_caller_metadata(auth, FACADE)
        peers = {
            name: await stack.enter_async_context(open_channel(addresses[name], caller_metadata)) for name in PEERS
        }
        address = await stack.enter_async_context(
            facade.serve(
                FacadeConfig(
                    port=0, process=ProcessSettings(drain_s=0, auth=auth), heartbeat_s=1, a2a_listen="127.0.0.1:0"
                ),
                peers,
            )
        )
        yield f"http://{address}"


@asynccontextmanager
async def behind_gateway(suite: TenantSuite) -> AsyncGenerator[aiohttp.ClientSession]:
    """The Go gateway before the suite and its facade."""
    addresses = {name: suite.addresses[name] for name in PEERS}
    env = {"HEADRACE_AUTH": "api_key", "HEADRACE_INTERNAL_TOKEN": suite.settings.internal_token}
    opening = gateway(addresses, Timing(), env, FACADE_ADDRESS=suite.url.removeprefix("http://"))
    async with opening as url, aiohttp.ClientSession(url) as http:
        yield http


@asynccontextmanager
async def opening_front(name: str, suite: TenantSuite) -> AsyncGenerator[aiohttp.ClientSession]:
    """Open one of FRONTS by its name."""
    if name == "embedded":
        yield suite.http
        return
    async with behind_gateway(suite) as http:
        yield http


async def until_refused(call: Callable[[], Awaitable[Any]]) -> None:
    """Repeat the call until the key is refused. At first a service may not know the key yet."""
    while True:
        try:
            await call()
        except CredentialEnded:
            return
        except Unauthenticated:
            pass
        await asyncio.sleep(0.02)


def fresh() -> str:
    """Return an unused id."""
    return str(uuid.uuid4())
