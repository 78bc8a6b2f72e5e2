"""Artifacts: the files in outputs/ that are new or changed when a call has ended.

The folder is compared with what it held when the first of a chat's overlapping calls began, so that a file which two
calls could have written is published once.
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
from services.tools.toolkit.tool import Call
from services.tools.workspace.content_types import content_type
from services.tools.workspace.references import resource_url
from services.tools.workspace.tree_walk import walk
from services.tools.workspace.workspace import Workspace, Workspaces

FILES_MAX = 5000
"""Files of outputs/ that are compared, the first by path: two looks cost 25 ms."""

ARTIFACTS_MAX = 50
"""Of one call. What makes more, unpacks or builds; its files are in the folder all the same."""

Mark: TypeAlias = tuple[int, int, int]
"""Inode, size and time of change: what differs when a file is another one."""

log = structlog.get_logger()


@dataclass(slots=True)
class _Watched:
    """The outputs of one chat while calls run in it."""

    before: dict[str, Mark]
    calls: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Outputs:
    """Watches the outputs of all chats in which calls run. One for the service."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces
        self._watched: dict[str, _Watched] = {}

    async def publishing(
        self, call: Call, deltas: AsyncGenerator[tools_pb2.ToolDelta]
    ) -> AsyncGenerator[tools_pb2.ToolDelta]:
        """What the call streams, with an artifact for each file it wrote before its result. Closes `deltas`."""
        told = set[str]()
        async with aclosing(deltas):
            watched = await self._begin(call.chat_id)
            try:
                async for delta in deltas:
                    if delta.HasField("artifact"):
                        told.add(delta.artifact.url)
                    if delta.HasField("result"):
                        for artifact in await self._changed(call, watched):
                            if artifact.url not in told:
                                yield tools_pb2.ToolDelta(artifact=artifact)
                    yield delta
            finally:
                watched.calls -= 1
                if not watched.calls:
                    self._watched.pop(call.chat_id, None)

    async def _begin(self, chat_id: str) -> _Watched:
        watched = self._watched.get(chat_id)
        if watched is None:
            before = await asyncio.to_thread(_marks, self._workspaces, chat_id)
            watched = self._watched.setdefault(chat_id, _Watched(before))  # or that of who was faster
        watched.calls += 1
        return watched

    async def _changed(self, call: Call, watched: _Watched) -> list[agent_pb2.ArtifactPublish]:
        """Artifacts for what has changed since the last look, which this one becomes."""
        async with watched.lock:
            after = await asyncio.to_thread(_marks, self._workspaces, call.chat_id)
            paths = [path for path, mark in after.items() if watched.before.get(path) != mark]
            watched.before = after
        if len(paths) > ARTIFACTS_MAX:
            log.warning("artifacts left out", tool=call.request.tool_name, artifacts=len(paths), kept=ARTIFACTS_MAX)
        changed = {path: after[path] for path in paths[:ARTIFACTS_MAX]}
        return await asyncio.to_thread(_artifacts, self._workspaces, call, changed) if changed else []


def _marks(workspaces: Workspaces, chat_id: str) -> dict[str, Mark]:
    """The files below outputs/, hidden ones left out: they are programs' own."""
    try:
        with workspaces.open(chat_id).opening("outputs") as fd, closing(walk(fd)) as entries:
            files = (entry for entry in entries if entry.is_file and "/." not in f"/{entry.path}")
            return {
                f"outputs/{entry.path}": (entry.status.st_ino, entry.status.st_size, entry.status.st_mtime_ns)
                for entry in islice(files, FILES_MAX)
            }
    except OSError as error:  # a command has removed the folder, or put something else in its place
        log.info("outputs not found", problem=os.strerror(error.errno or 0))
        return {}


def _artifacts(workspaces: Workspaces, call: Call, changed: dict[str, Mark]) -> list[agent_pb2.ArtifactPublish]:
    workspace = workspaces.open(call.chat_id)
    found = (_artifact(workspace, call, path, mark) for path, mark in changed.items())
    return [artifact for artifact in found if artifact is not None]


def _artifact(workspace: Workspace, call: Call, path: str, mark: Mark) -> agent_pb2.ArtifactPublish | None:
    try:
        path.encode()
        with workspace.reading(path) as fd:
            content = content_type(fd, path)
            size_bytes = os.fstat(fd).st_size
    except (OSError, ValueError):
        return None  # gone again, or a name that is not text and so has no address
    return agent_pb2.ArtifactPublish(
        artifact_id=f"artifact_{hashlib.sha256(f'{call.chat_id}/{path}/{mark}'.encode()).hexdigest()[:16]}",
        run_id=call.request.run_id,
        name=path.rpartition("/")[2],
        mime_type=content.mime_type,
        size_bytes=size_bytes,
        url=resource_url(call.chat_id, path),
    )
