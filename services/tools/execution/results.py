"""A call's result in the form for the model: without credentials, shortened, and with the call's artifacts.

A tool may repeat its input: a program that prints its environment, for example. Artifacts are the files in outputs/
that are new or changed when a call ends. The folder is compared with its state before the first of a chat's overlapping
calls, so that a file is published once.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, closing
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

import structlog

from headrace.v1 import agent_pb2, tools_pb2
from services.runtime.rpc.call_ids import list_tool_credentials
from services.runtime.telemetry.masking import MASK, SECRET_CHARS_MIN
from services.tools.errors import ToolFailed
from services.tools.toolkit.tool import RESULT_CHARS_MAX, Tool, ToolContext, make_output, make_result
from services.tools.workspace.content_types import detect_type
from services.tools.workspace.file_work import run_in_thread
from services.tools.workspace.tree_walk import walk_tree
from services.tools.workspace.workspace import Workspace

log = structlog.get_logger()

FOLDER = "outputs/results"

HEAD_CHARS = 20_000
"""Characters kept of the beginning; the rest of the room is for the end, which contains errors."""

FILES_MAX = 5000
"""Maximum files compared, the first by path, which take 25 ms."""

ARTIFACTS_MAX = 50
"""Maximum artifacts of one call; further files stay in the folder unpublished."""

FileMark: TypeAlias = tuple[int, int, int]


async def run_bounded(tool: Tool, context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
    """Stream a tool's output and, last, its result with a bounded length; a ToolFailed becomes one."""
    try:
        async with aclosing(mask_deltas(_execute_in_time(tool, context), list_tool_credentials())) as deltas:
            async for delta in deltas:
                if delta.HasField("result") and len(delta.result.result) > RESULT_CHARS_MAX:
                    artifact = await _save_result(tool, context, delta.result.result)
                    if artifact is not None:
                        yield tools_pb2.ToolDelta(artifact=artifact)
                    path = f"{FOLDER}/{artifact.name}" if artifact else ""
                    delta.result.result = shorten_result(delta.result.result, path)
                yield delta
    except ToolFailed as failure:
        text = mask_text(str(failure), list_forms(list_tool_credentials()))  # before a cut could leave half of one
        yield make_result(shorten_result(text, ""), ok=False)


async def _execute_in_time(tool: Tool, context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
    # Commands, interpreters, MCP servers and model calls keep the time themselves; tools that write are not
    # interrupted.
    is_limited = tool.effect == "read" and not (tool.needs & {"sandbox", "model"} or tool.server)
    due_s = asyncio.get_running_loop().time() + context.timeout_s if is_limited and context.timeout_s else None
    async with aclosing(tool.execute(context)) as deltas:
        while True:
            try:
                async with asyncio.timeout_at(due_s):
                    delta = await anext(deltas, None)
            except TimeoutError:
                raise ToolFailed(f"ended after {context.timeout_s:g} s: its time was over") from None
            if delta is None:
                return
            yield delta


def shorten_result(text: str, path: str) -> str:
    """Cut out the middle and insert a note with the full size and the `path`."""
    if len(text) <= RESULT_CHARS_MAX:
        return text
    where = f"the whole is in {path}" if path else "the whole could not be kept"
    note = f"\n[… cut here: {len(text)} characters in all; this is the start and the end; {where} …]\n"
    return text[:HEAD_CHARS] + note + text[HEAD_CHARS + len(note) - RESULT_CHARS_MAX :]


async def _save_result(tool: Tool, context: ToolContext, text: str) -> agent_pb2.ArtifactPublish | None:
    path, data = f"{FOLDER}/{tool.name}-{context.short_id}.txt", text.encode(errors="replace")
    try:
        workspace = await run_in_thread(path, context.open_workspace)
        await run_in_thread(path, lambda: workspace.write_file(path, data))
    except ToolFailed as failure:
        log.warning("long result not kept", tool=tool.name, problem=str(failure))
        return None
    return context.make_artifact(context.short_id, path, "text/plain", len(data))


async def mask_deltas(
    deltas: AsyncGenerator[tools_pb2.ToolDelta], credentials: Iterable[str]
) -> AsyncGenerator[tools_pb2.ToolDelta]:
    """Stream the deltas with each credential replaced; the end of an output is held back while it may begin one."""
    secrets = list_forms(credentials)
    held: dict[str, str] = {}
    """End of each output stream that may begin a credential."""
    async with aclosing(deltas) as given:
        async for delta in given:
            if not secrets:
                yield delta
                continue
            if delta.HasField("output"):
                stream = delta.output.stream
                text = mask_text(held.get(stream, "") + delta.output.delta, secrets)
                size = max(_measure_begin(text, secret) for secret in secrets)
                delta.output.delta, held[stream] = text[: len(text) - size], text[len(text) - size :]
                if delta.output.delta:
                    yield delta
                continue
            if delta.HasField("result"):
                for stream, rest in held.items():
                    if rest:
                        yield make_output(stream, rest)
                held.clear()
                delta.result.result = mask_text(delta.result.result, secrets)
            yield delta


def list_forms(credentials: Iterable[str]) -> set[str]:
    """Return the forms in which credentials appear in texts, except those too short to distinguish from words."""
    # In JSON text some characters are written otherwise.
    return {form for one in credentials if len(one) >= SECRET_CHARS_MIN for form in (one, json.dumps(one)[1:-1])}


def _measure_begin(text: str, secret: str) -> int:
    """Return how many characters at the end of `text` may begin `secret`."""
    return next((size for size in range(min(len(text), len(secret) - 1), 0, -1) if secret.startswith(text[-size:])), 0)


def mask_text(text: str, secrets: Iterable[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


@dataclass(slots=True)
class _WatchedFolder:
    before: dict[str, FileMark]
    calls: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class ArtifactPublisher:
    def __init__(self) -> None:
        self._watched: dict[str, _WatchedFolder] = {}

    async def publish_changes(
        self, context: ToolContext, deltas: AsyncGenerator[tools_pb2.ToolDelta]
    ) -> AsyncGenerator[tools_pb2.ToolDelta]:
        """Stream `deltas` with artifacts before the call's result, and close them."""
        published = set[str]()
        async with aclosing(deltas):
            watched = await self._start_watching(context)
            try:
                async for delta in deltas:
                    if delta.HasField("artifact"):
                        published.add(delta.artifact.url)
                    if delta.HasField("result"):
                        for artifact in await self._find_changes(context, watched):
                            if artifact.url not in published:
                                yield tools_pb2.ToolDelta(artifact=artifact)
                    yield delta
            finally:
                watched.calls -= 1
                if not watched.calls:
                    self._watched.pop(context.chat_id, None)

    async def _start_watching(self, context: ToolContext) -> _WatchedFolder:
        watched = self._watched.get(context.chat_id)
        if watched is None:
            before = await asyncio.to_thread(_read_marks, context)
            # Another call may have been faster.
            watched = self._watched.setdefault(context.chat_id, _WatchedFolder(before))
        watched.calls += 1
        return watched

    async def _find_changes(self, context: ToolContext, watched: _WatchedFolder) -> list[agent_pb2.ArtifactPublish]:
        async with watched.lock:
            after = await asyncio.to_thread(_read_marks, context)
            paths = [path for path, mark in after.items() if watched.before.get(path) != mark]
            watched.before = after
        if len(paths) > ARTIFACTS_MAX:
            log.warning("artifacts left out", tool=context.request.tool_name, artifacts=len(paths), kept=ARTIFACTS_MAX)
        changed = {path: after[path] for path in paths[:ARTIFACTS_MAX]}
        return await asyncio.to_thread(_make_artifacts, context, changed) if changed else []


def _read_marks(context: ToolContext) -> dict[str, FileMark]:
    # Hidden files are left out, because they belong to programs.
    try:
        with context.open_workspace().open_folder("outputs") as fd, closing(walk_tree(fd)) as entries:
            files = (entry for entry in entries if entry.is_file and "/." not in f"/{entry.path}")
            return {
                f"outputs/{entry.path}": (entry.status.st_ino, entry.status.st_size, entry.status.st_mtime_ns)
                for entry in islice(files, FILES_MAX)
            }
    except OSError as error:  # a command has removed the folder, or put something else in its place
        log.info("outputs not found", problem=os.strerror(error.errno or 0))
        return {}


def _make_artifacts(context: ToolContext, changed: dict[str, FileMark]) -> list[agent_pb2.ArtifactPublish]:
    try:
        workspace = context.open_workspace()
    except OSError as error:  # the call has had its effect, so its result is kept
        log.error("artifacts left out", tool=context.request.tool_name, problem=os.strerror(error.errno or 0))
        return []
    artifacts = (_make_artifact(workspace, context, path, mark) for path, mark in changed.items())
    return [artifact for artifact in artifacts if artifact is not None]


def _make_artifact(
    workspace: Workspace, context: ToolContext, path: str, mark: FileMark
) -> agent_pb2.ArtifactPublish | None:
    try:
        path.encode()
        with workspace.open_file(path) as fd:
            content = detect_type(fd, path)
            size_bytes = os.fstat(fd).st_size
    except (OSError, ValueError):
        return None  # gone again, or a name that is not text and so has no address
    digest = hashlib.sha256(f"{context.chat_id}/{path}/{mark}".encode()).hexdigest()[:16]
    return context.make_artifact(digest, path, content.mime_type, size_bytes)
