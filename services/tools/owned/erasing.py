"""Deletes what this service keeps of a user or a tenant."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from headrace.v1 import data_pb2, tools_pb2
from services.runtime.files.disk import disk_errors, sync_folder
from services.tools.workspace.retention import remove_folder, remove_leftovers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from services.runtime.auth.identity import Identity
    from services.tools.interpreter.pool import InterpreterPool
    from services.tools.owned.chats import ChatFolders

WHAT = "what is to be erased"


async def erase_owned(
    folders: ChatFolders,
    interpreters: InterpreterPool,
    forget_tokens: Callable[[str, str, Collection[str]], Awaitable[int]],
    request: tools_pb2.EraseOwnedDataRequest,
) -> tools_pb2.EraseOwnedDataResponse:
    """Delete it, each chat's owner last, so that who is cut goes on where this ended; `forget_tokens` forgets those of
    a user, or of a tenant but some users, and says how many there were. Raises Overloaded."""
    counts: Counter[str] = Counter()
    with disk_errors(WHAT, ""):
        for chat_id, owner in await asyncio.to_thread(lambda: list(folders.list_owned())):
            if _is_erased(request, chat_id, owner):
                await interpreters.end_of_chat(chat_id)
                counts += await asyncio.to_thread(_remove_chat, folders, chat_id)
        for redacted in request.redacted:
            counts["call_records"] += await asyncio.to_thread(_remove_records, folders, redacted)
        await asyncio.to_thread(remove_leftovers, folders.roots)
        held = frozenset(request.held_users)
        counts["authorizations"] += await forget_tokens(request.tenant, request.user, held)
    erased = [data_pb2.ErasedItem(name=name, count=count) for name, count in sorted(counts.items()) if count]
    return tools_pb2.EraseOwnedDataResponse(erased=erased)


def _is_erased(request: tools_pb2.EraseOwnedDataRequest, chat_id: str, owner: Identity) -> bool:
    if owner.tenant != request.tenant or request.user not in ("", owner.user):
        return False
    return chat_id not in request.held_chat_ids and owner.user not in request.held_users


def _remove_chat(folders: ChatFolders, chat_id: str) -> Counter[str]:
    workspaces, records, owners = folders.roots
    counts = Counter(call_records=len(list((records / chat_id).glob("*.json"))))
    counts["workspaces"] = int((workspaces / chat_id).is_dir())
    for root in (workspaces, records, owners):
        if (root / chat_id).is_dir():
            remove_folder(root / chat_id)
    return counts


def _remove_records(folders: ChatFolders, redacted: data_pb2.ChatRuns) -> int:
    """Delete the records of calls of some runs of a chat, and what is left of those that were being written."""
    folder = folders.effects.root / redacted.chat_id
    runs = [f'"{run_id}/'.encode() for run_id in redacted.run_ids]
    removed = 0
    for path in folder.glob("*"):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            continue
        if any(run in data for run in runs):
            path.unlink(missing_ok=True)
            removed += path.suffix == ".json"
    if removed:
        sync_folder(folder)
    return removed
