"""Workspace files that a context mentions, for its summary."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import structlog

from headrace.errors import HeadraceError
from headrace.v1 import llm_pb2, memory_pb2
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.peers.workspace_files import list_workspace, read_start
from services.orchestrator.turn.compacting.path_mentions import PathMentions

FILES_MAX = 5
LINES_MAX = 1000

READ_BYTES_MAX = 1024 * 1024
"""A thousand lines seldom have more."""

log = structlog.get_logger()


async def collect_files(peers: Peers, context: memory_pb2.LoadContextRequest) -> list[memory_pb2.ContextFile]:
    """Return the files that all of a context mentions, of which a turn may be shown a part: the most important first,
    unreadable ones left out."""
    chat_id = context.chat_id
    listed = await list_workspace(peers, chat_id)
    paths = frozenset(file.path for file in listed.files) if listed is not None else None
    found: list[memory_pb2.ContextFile] = []
    for path in await asyncio.to_thread(_rank_paths, await _load_messages(peers, context), paths) if paths else ():
        data = await read_start(peers, chat_id, path, READ_BYTES_MAX)
        if data is not None and b"\0" not in data:
            lines = data.decode(errors="replace").splitlines()
            omitted = max(0, len(lines) - LINES_MAX)
            found.append(memory_pb2.ContextFile(path=path, text="\n".join(lines[:LINES_MAX]), lines_omitted=omitted))
        if len(found) == FILES_MAX:
            break
    return found


async def _load_messages(peers: Peers, context: memory_pb2.LoadContextRequest) -> Sequence[llm_pb2.Message]:
    try:
        loaded = await peers.memory.LoadContext(context)
    except HeadraceError as error:
        # A summary without files is worth more than none.
        log.warning("files not looked for", reason=error.reason)
        return []
    return loaded.messages


def _rank_paths(messages: Sequence[llm_pb2.Message], paths: Collection[str]) -> list[str]:
    mentions = PathMentions(paths)
    for message in messages:
        mentions.read_text("".join(part.text for part in message.content))
        for call in message.tool_calls:
            mentions.read_call(call)
    return mentions.rank_paths()
