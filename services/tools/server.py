"""Assembles the tools service."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from headrace.v1 import llm_pb2_grpc, tools_pb2, tools_pb2_grpc
from services.runtime.auth.audit_records import AuditRecords
from services.runtime.auth.callers import TOOLS
from services.runtime.auth.setup import following_memory_keys
from services.runtime.capacity import Capacity
from services.runtime.ending import guard_task
from services.runtime.files.file_watch import watching_paths
from services.runtime.net.allow_list import parse_allow_list
from services.runtime.rpc.channels import build_caller_metadata, open_channel
from services.runtime.rpc.server import GrpcService, RunningServer, serving_grpc
from services.tools.catalogue.catalogue import Catalogue
from services.tools.config import Config
from services.tools.execution.effect_records import EffectRecords, Sync
from services.tools.execution.executor import Executor
from services.tools.interpreter.pool import run_pool
from services.tools.mcp_client.authorizations import Authorizations
from services.tools.mcp_client.oauth.token_store import TokenStore
from services.tools.mcp_client.servers import run_mcp_servers
from services.tools.sandbox.leftovers import make_mark, sweep_leftovers
from services.tools.sandbox.tiers import Sandbox
from services.tools.service import ToolService
from services.tools.skills.environments import SkillEnvironments
from services.tools.skills.linker import SkillLinker
from services.tools.skills.skill_folder import SkillFolder
from services.tools.toolkit.tool import ToolContext
from services.tools.web.fetcher import Fetcher
from services.tools.web.search import Search
from services.tools.web.web import Web
from services.tools.workspace.chat_rights import ChatRights, HeldChats
from services.tools.workspace.retention import remove_unused
from services.tools.workspace.workspace import Workspaces

NAME = tools_pb2.DESCRIPTOR.services_by_name["ToolService"].full_name


@asynccontextmanager
async def tool_server(
    config: Config,
    sandbox: Sandbox,
    catalogue: Catalogue,
    *,
    env: Mapping[str, str] | None = None,
    sync: Sync = os.fsync,
) -> AsyncGenerator[RunningServer]:
    """Serve inside the block. `env` supplies the variables that mcp.json and tool files refer to; `sync` makes records
    durable."""
    async with AsyncExitStack() as stack:
        # Not among the peers of readiness: most tools work without a model.
        gateway = await stack.enter_async_context(
            open_channel(config.llm_gateway_address, build_caller_metadata(config.server.auth, TOOLS))
        )
        llm = llm_pb2_grpc.LlmServiceStub(gateway)
        web = Web(Fetcher(parse_allow_list(config.fetch_allow)), Search(config.search_url, config.search_key))
        workspaces = Workspaces(config.data_dir / "workspaces", config.workspace_bytes_max, config.disk_reserve_bytes)
        effects = EffectRecords(config.data_dir / "effects", sync)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        await stack.enter_async_context(
            watching_paths(catalogue.paths, catalogue.read_files, lambda _: catalogue.rebuild())
        )
        tokens = TokenStore(config.data_dir / "mcp_tokens", config.secrets_key) if config.secrets_key else None
        mcp = await stack.enter_async_context(
            run_mcp_servers(config.config_dir, env or {}, catalogue.replace_source, tokens)
        )
        environments = SkillEnvironments(config.data_dir / "skill_envs", group)
        stack.callback(environments.stop)
        sandbox = dataclasses.replace(
            sandbox, readable=(*sandbox.readable, str(environments.root)), mark=make_mark(config.data_dir)
        )
        stack.callback(guard_task(group.create_task(sweep_leftovers(config.data_dir))).cancel)
        skills = SkillLinker(SkillFolder(config.config_dir / "skills"), environments, workspaces)
        is_shared = not config.server.auth.is_none
        sessions = await stack.enter_async_context(run_pool(config.interpreters_max, is_shared=is_shared))

        def make_context(request: tools_pb2.ExecuteRequest, arguments: dict[str, Any]) -> ToolContext:
            return ToolContext(
                arguments=arguments,
                request=request,
                workspaces=workspaces,
                sandbox=sandbox,
                interpreters=sessions,
                web=web,
                llm=llm,
                env=env or {},
            )

        commands = Capacity(config.commands_max, is_shared=is_shared)
        executor = Executor(catalogue, workspaces, effects, make_context, commands, mcp.find_own_tools)
        memory = await stack.enter_async_context(
            open_channel(config.memory_address, build_caller_metadata(config.server.auth, TOOLS))
        )
        rights = ChatRights(memory, workspaces)
        roots = (workspaces.root, effects.root, workspaces.owners.root)
        holds = HeldChats(memory, workspaces.owners)
        daily = group.create_task(remove_unused(roots, config.workspace_retention_days, holds.read))
        stack.callback(guard_task(daily).cancel)
        service = ToolService(
            *(catalogue, executor, workspaces, skills, effects, sandbox, web, config, rights),
            mcp=mcp,
            authorizations=Authorizations(tokens, mcp, AuditRecords(memory, TOOLS)),
            interpreters=sessions,
        )
        served = GrpcService(NAME, service, tools_pb2_grpc.add_ToolServiceServicer_to_server)
        keys = await stack.enter_async_context(following_memory_keys(config.server.auth, memory))
        refused = AuditRecords(memory, TOOLS).count_refused()
        yield await stack.enter_async_context(serving_grpc(config.server, [served], keys=keys, record_refused=refused))
