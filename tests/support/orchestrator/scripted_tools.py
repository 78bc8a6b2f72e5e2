"""A ToolService whose tools follow a test's script."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any
from urllib.parse import urlencode

import grpc

from headrace.errors import HeadraceError, NotFound, ProviderAuthentication
from headrace.v1 import common_pb2, tools_pb2, tools_pb2_grpc
from tests.support.orchestrator.steps import BREAK, ToolStep


class ScriptedTools(tools_pb2_grpc.ToolServiceServicer):
    """Has two tools: `look` answers at once, `slow` sends output and then waits to be stopped. Tests add others, with
    steps for each attempt: deltas to send, seconds to wait, an error to raise, or BREAK.
    """

    def __init__(self) -> None:
        self.tools = [tools_pb2.Tool(name=name, parameters="{}", kind="backend") for name in ("look", "slow")]
        self.plays: dict[str, list[list[ToolStep]]] = {}
        self.effects = [tools_pb2.CheckEffectResponse(state="unknown")]
        self.checked: list[str] = []
        self.listing: Callable[[], Awaitable[None]] = nothing
        """Awaited by each ListTools."""
        self.breaking: set[str] = set()
        """RPCs whose next call is aborted."""
        self.skills: list[tools_pb2.Skill] = []
        self.linked: list[str] = []
        self.requests: list[tools_pb2.ExecuteRequest] = []
        self.open = 0
        self.delay_s = 0.0
        self.outcome = True
        self.result_chars = 0
        """Length to which results are padded; 0: no padding."""
        self.files: dict[str, bytes] = {}
        """The files of every workspace, by path."""
        self.lists_files = True
        self.upload_error: HeadraceError | None = None
        self.error: HeadraceError | None = None
        self.execute: Callable[[tools_pb2.ExecuteRequest], AsyncGenerator[tools_pb2.ToolDelta]] | None = None
        self.check: Callable[[str], tools_pb2.CheckEffectResponse] | None = None
        """Replacements of Execute and CheckEffect by a test."""

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
                        # Without details, like the end of a connection.
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
        paths = [path for path in sorted(self.files) if path.startswith(f"{request.path}/".lstrip("/"))]
        return tools_pb2.ListFilesResponse(files=[tools_pb2.FileInfo(path=path) for path in paths])

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


async def nothing() -> None:
    pass


def tool(name: str, kind: str, **fields: Any) -> tools_pb2.Tool:
    given: dict[str, Any] = {"parameters": '{"type":"object"}'} | fields
    return tools_pb2.Tool(name=name, kind=kind, **given)
