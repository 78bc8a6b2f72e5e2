from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from headrace.errors import NotFound
from headrace.v1 import data_pb2, limits_pb2, tools_pb2, tools_pb2_grpc
from services.runtime.auth.identity import Identity, check_scope, current_tenant, require_identity
from services.runtime.process.limits import finish_limits, make_configured, make_fixed
from services.tools.catalogue.catalogue import Catalogue
from services.tools.config import Config
from services.tools.execution import effect_guard
from services.tools.execution.effect_records import EffectRecords
from services.tools.execution.executor import Executor
from services.tools.interpreter.pool import InterpreterPool
from services.tools.mcp_client.authorizations import Authorizations
from services.tools.mcp_client.servers import McpServers
from services.tools.sandbox.tiers import Sandbox
from services.tools.skills.linker import SkillLinker
from services.tools.toolkit.commands import explain_unavailable
from services.tools.toolkit.tool import ARGUMENT_BYTES_MAX, RESULT_CHARS_MAX, Tool
from services.tools.transfer import downloads, uploads
from services.tools.transfer.uploads import Uploads
from services.tools.user_data import ChatFolders, erase_user_data, read_user_data
from services.tools.web.search import NOT_CONFIGURED
from services.tools.web.web import Web
from services.tools.workspace.chat_rights import ChatRights
from services.tools.workspace.quota import FILES_MAX
from services.tools.workspace.workspace import Workspaces


@dataclass(eq=False)
class ToolService(tools_pb2_grpc.ToolServiceServicer):
    catalogue: Catalogue
    executor: Executor
    workspaces: Workspaces
    skills: SkillLinker
    effects: EffectRecords
    sandbox: Sandbox
    web: Web
    config: Config
    rights: ChatRights
    mcp: McpServers
    authorizations: Authorizations
    interpreters: InterpreterPool

    def __post_init__(self) -> None:
        self._uploads = Uploads(self.workspaces, self.rights, is_shared=not self.config.server.auth.is_none)
        self._folders = ChatFolders(self.workspaces, self.effects)

    async def ListTools(self, request: tools_pb2.ListToolsRequest, context: Any) -> tools_pb2.ListToolsResponse:
        wanted = {name.casefold() for name in request.names}
        own = () if request.common_only else await self.mcp.list_own_tools()
        tools = [tool for tool in self.catalogue.list_tools(own) if not wanted or tool.name.casefold() in wanted]
        return tools_pb2.ListToolsResponse(tools=[self._describe_tool(tool) for tool in tools])

    async def GetTool(self, request: tools_pb2.GetToolRequest, context: Any) -> tools_pb2.GetToolResponse:
        entry = self.catalogue.find(request.tool_name)
        if entry is None:
            entry = self.catalogue.find(request.tool_name, await self.mcp.list_own_tools())
        if entry is None:
            raise NotFound(f"tool {request.tool_name!r} does not exist", toolName=request.tool_name)
        return tools_pb2.GetToolResponse(tool=self._describe_tool(entry.tool))

    async def Execute(self, request: tools_pb2.ExecuteRequest, context: Any) -> AsyncGenerator[tools_pb2.ToolDelta]:
        await self.rights.enter_chat(request.chat_id, request.run_id)
        async with aclosing(self.executor.execute(request)) as deltas:
            async for delta in deltas:
                yield delta

    async def CheckEffect(self, request: tools_pb2.CheckEffectRequest, context: Any) -> tools_pb2.CheckEffectResponse:
        await self.rights.enter_chat(request.chat_id)
        await asyncio.to_thread(self.workspaces.check_owner, request.chat_id)
        return await effect_guard.check_effect(self.effects, request)

    async def ListSkills(self, request: tools_pb2.ListSkillsRequest, context: Any) -> tools_pb2.ListSkillsResponse:
        return tools_pb2.ListSkillsResponse(skills=await self.skills.list_skills())

    async def LinkSkill(self, request: tools_pb2.LinkSkillRequest, context: Any) -> tools_pb2.LinkSkillResponse:
        await self.rights.enter_chat(request.chat_id)
        await asyncio.to_thread(self.workspaces.check_owner, request.chat_id)
        return await self.skills.link_skill(request)

    async def GetViewport(self, request: tools_pb2.GetViewportRequest, context: Any) -> tools_pb2.GetViewportResponse:
        view = self.catalogue.find_view(request.viewport_key)
        if view is None:
            raise NotFound(f"view {request.viewport_key!r} does not exist", viewportKey=request.viewport_key)
        if view.is_html:
            return tools_pb2.GetViewportResponse(html=view.text)
        return tools_pb2.GetViewportResponse(view=view.text)

    async def UploadFile(
        self, request_iterator: AsyncIterator[tools_pb2.UploadFileRequest], context: Any
    ) -> tools_pb2.UploadFileResponse:
        return await self._uploads.receive_file(request_iterator)

    async def ReadFile(
        self, request: tools_pb2.ReadFileRequest, context: Any
    ) -> AsyncGenerator[tools_pb2.ReadFileResponse]:
        await self.rights.enter_chat(request.chat_id, shows_content=True)
        async with aclosing(downloads.read_file(self.workspaces, request)) as pieces:
            async for piece in pieces:
                yield piece

    async def ListFiles(self, request: tools_pb2.ListFilesRequest, context: Any) -> tools_pb2.ListFilesResponse:
        await self.rights.enter_chat(request.chat_id)
        return await downloads.list_files(self.workspaces, request)

    async def CompleteAuthorization(
        self, request: tools_pb2.CompleteAuthorizationRequest, context: Any
    ) -> tools_pb2.CompleteAuthorizationResponse:
        await self.rights.check_new_work()
        return tools_pb2.CompleteAuthorizationResponse(server=await self.authorizations.complete(request))

    async def ReadOwnedData(
        self, request: data_pb2.ExportDataRequest, context: Any
    ) -> AsyncGenerator[data_pb2.ArchivePiece]:
        who = require_identity()
        if request.user not in ("", who.user):
            check_scope(who, "admin")
        owner = Identity(who.tenant, request.user or who.user)
        servers = await self.authorizations.list_authorized(owner)
        async with aclosing(read_user_data(self._folders, owner, servers)) as pieces:
            async for piece in pieces:
                yield piece

    async def EraseOwnedData(
        self, request: tools_pb2.EraseOwnedDataRequest, context: Any
    ) -> tools_pb2.EraseOwnedDataResponse:
        return await erase_user_data(self._folders, self.interpreters, self.authorizations.forget_all, request)

    async def ListAuthorizations(
        self, request: tools_pb2.ListAuthorizationsRequest, context: Any
    ) -> tools_pb2.ListAuthorizationsResponse:
        return tools_pb2.ListAuthorizationsResponse(authorizations=await self.authorizations.list_own())

    async def RevokeAuthorization(
        self, request: tools_pb2.RevokeAuthorizationRequest, context: Any
    ) -> tools_pb2.RevokeAuthorizationResponse:
        is_revoked = await self.authorizations.revoke(request.server)
        return tools_pb2.RevokeAuthorizationResponse(revoked_at_issuer=is_revoked)

    async def ListLimits(self, request: limits_pb2.ListLimitsRequest, context: Any) -> limits_pb2.ListLimitsResponse:
        return list_limits(self.config, self.executor)

    def _describe_tool(self, tool: Tool) -> tools_pb2.Tool:
        refused = "sandbox" in tool.needs and self.sandbox.tier is None
        problem = explain_unavailable(self.sandbox.problem) if refused else tool.unavailable
        if "search" in tool.needs and not self.web.search.url:
            problem = NOT_CONFIGURED
        return tools_pb2.Tool(
            name=tool.name,
            description=tool.description,
            parameters=tool.parameters,
            kind=tool.kind,
            tier=tool.tier,
            effect=tool.effect,
            after_call_hint=tool.after_call_hint or None,
            viewport_key=(tool.front_end and tool.front_end.viewport_key) or None,
            unavailable=problem or None,
            approval=tool.approval,
            answerers=tool.answerers,
            always_available=tool.always_available,
            category=tool.category or None,
            tags=tool.tags,
            timeout_ms=tool.front_end and tool.front_end.timeout_ms,
            result_schema=(tool.front_end and tool.front_end.result_schema) or None,
            asks_model="model" in tool.needs,
            per_user_server=tool.server if tool.is_per_user else None,
        )


def list_limits(config: Config, executor: Executor) -> limits_pb2.ListLimitsResponse:
    sizes = [
        make_fixed("upload_bytes", bytes_max, subject=kind, kind="size", unit="bytes", per="call")
        for kind, bytes_max in uploads.LIMITS.items()
    ]
    return finish_limits(
        "tools",
        [
            make_configured(
                config,
                "commands_max",
                "TOOLS",
                name="commands",
                kind="concurrency",
                unit="commands",
                per="all",
                used=executor.commands.count_taken(current_tenant()),
                is_full=not executor.commands.has_room_for(current_tenant()),
                is_per_replica=True,
            ),
            make_configured(
                config,
                "interpreters_max",
                "TOOLS",
                name="interpreters",
                kind="concurrency",
                unit="interpreters",
                per="all",
                is_per_replica=True,
            ),
            make_configured(
                config,
                "workspace_bytes_max",
                "TOOLS",
                name="workspace_bytes",
                kind="size",
                unit="bytes",
                per="chat",
            ),
            make_fixed("workspace_files", FILES_MAX, kind="count", unit="files", per="chat"),
            make_fixed(
                "uploads", uploads.UPLOADS_MAX, kind="concurrency", unit="uploads", per="all", is_per_replica=True
            ),
            make_fixed("tool_arguments_bytes", ARGUMENT_BYTES_MAX, kind="size", unit="bytes", per="call"),
            make_fixed("tool_result_chars", RESULT_CHARS_MAX, kind="size", unit="characters", per="call"),
            *sizes,
        ],
    )
