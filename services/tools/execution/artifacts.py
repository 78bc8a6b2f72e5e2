"""Finds artifacts, the files in outputs/ that are new or changed when a call has ended.

The folder is compared with its state before the first of a chat's overlapping calls, so that a file is published once.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing, closing
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

import structlog

from headrace.v1 import agent_pb2, tools_pb2
from services.tools.toolkit.context import ToolContext
from services.tools.workspace.content_types import detect_type
from services.tools.workspace.references import resource_url
from services.tools.workspace.tree_walk import walk_tree
from services.tools.workspace.workspace import Workspace

FILES_MAX = 5000
"""Files that are compared, the first by path; so many take 25 ms."""

ARTIFACTS_MAX = 50
"""Artifacts of one call; further files stay in the folder unpublished."""

FileMark: TypeAlias = tuple[int, int, int]

log = structlog.get_logger()


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
        """Streams `deltas` with artifacts before the call's result, and closes them."""
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
            watched = self._watched.setdefault(
                context.chat_id, _WatchedFolder(before)
            )  # another call may have been faster
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
    except OSError as error:  # what the call has done stands, and its result with it
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
    return agent_pb2.ArtifactPublish(
        artifact_id=f"artifact_{hashlib.sha256(f'{context.chat_id}/{path}/{mark}'.encode()).hexdigest()[:16]}",
        run_id=context.request.run_id,
        name=path.rpartition("/")[2],
        mime_type=content.mime_type,
        size_bytes=size_bytes,
        url=resource_url(context.chat_id, path),
    )
