"""A user who edits chats: titles, pins, summaries, and reverts of the models' view."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.v1 import memory_pb2
from services.runtime.randomness import RANDOM, new_uuid
from trials.simulation.people.asked import Edit

if TYPE_CHECKING:
    from trials.simulation.people.users import User
    from trials.simulation.plan import PlannedEdit

CALL_S = 20.0

FIRST_QUERY_N = 1


async def edit_chats(editor: User, planned: Sequence[PlannedEdit], chat_ids: Sequence[str]) -> None:
    """Do the edits one after another, each until it is answered or refused permanently."""
    for edit in planned:
        await asyncio.sleep(max(0.0, edit.at_s - asyncio.get_running_loop().time()))
        await _edit_chat(editor, chat_ids[edit.chat], edit.kind)


async def _edit_chat(editor: User, chat_id: str, kind: str) -> None:
    made = await _make_request(editor, chat_id, kind)
    if made is None:
        return
    method, request = made
    answer = await editor.try_until_answered(lambda: getattr(editor.memory, method)(request, timeout=CALL_S))
    if answer is None:
        return
    editor.story.tell(f"{editor.name} edits chat {chat_id[:4]}: {kind}, line {answer.n}", count=f"user edit {kind}")
    editor.edits.append(Edit(chat_id, kind, request, answer.n))


async def _make_request(editor: User, chat_id: str, kind: str) -> tuple[str, Any] | None:
    """Return the memory method and its request; None if there is nothing to edit."""
    memory = editor.memory
    if kind == "title":
        title = f"title {new_uuid()}"
        return "UpdateChat", memory_pb2.UpdateChatRequest(chat_id=chat_id, title=title, request_id=new_uuid())
    if kind in ("pin", "unpin"):
        is_removed = kind == "unpin"
        return "PinMessage", memory_pb2.PinMessageRequest(
            chat_id=chat_id, n=FIRST_QUERY_N, remove=is_removed, request_id=new_uuid()
        )
    if kind == "summary":
        get = memory_pb2.GetSummaryRequest(chat_id=chat_id)
        summary = await editor.try_until_answered(lambda: memory.GetSummary(get, timeout=CALL_S))
        if summary is None or not summary.n:
            return None
        return "EditSummary", memory_pb2.EditSummaryRequest(
            chat_id=chat_id, n=summary.n, text=f"edited by {editor.name}", request_id=new_uuid()
        )
    wanted = memory_pb2.ListCheckpointsRequest(chat_id=chat_id)
    listed = await editor.try_until_answered(lambda: memory.ListCheckpoints(wanted, timeout=CALL_S))
    if listed is None or not listed.checkpoints:
        return None
    checkpoint = RANDOM.get().choice(listed.checkpoints)
    return "Revert", memory_pb2.RevertRequest(
        chat_id=chat_id, checkpoint_id=checkpoint.checkpoint_id, n=checkpoint.n, scope="model", request_id=new_uuid()
    )
