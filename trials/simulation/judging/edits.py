"""Edits of chats: each acknowledged edit is one line of the log, and takes effect."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.v1 import memory_pb2

if TYPE_CHECKING:
    from trials.simulation.judging.chats import Line, Logs
    from trials.simulation.people.asked import Edit
    from trials.simulation.people.users import User

CALL_S = 20.0


async def judge_edits(judge: User, people: Iterable[User], logs: Logs) -> list[str]:
    """Compare acknowledgements with the log, and each chat's view with the last edit."""
    problems: list[str] = []
    for edits in (user.edits for user in people):
        problems += [problem for edit in edits for problem in _judge_line(edit, logs)]
        for chat_id in dict.fromkeys(edit.chat_id for edit in edits):
            of_chat = [edit for edit in edits if edit.chat_id == chat_id]
            problems += await _judge_views(judge, of_chat, logs.get(chat_id, []))
    return problems


def _judge_line(edit: Edit, logs: Logs) -> list[str]:
    lines = logs.get(edit.chat_id, [])
    stored = [line["_n"] for line in lines if line.get("uuid") == edit.request.request_id]
    if stored == ([edit.n] if edit.n else []):
        return []
    return [f"{edit.kind} of chat {edit.chat_id} was answered with line {edit.n}, and is in lines {stored}"]


async def _judge_views(judge: User, edits: list[Edit], lines: list[Line]) -> list[str]:
    """Compare the view of one chat with its `edits`; `lines` is its log."""
    problems: list[str] = []
    chat_id = edits[0].chat_id
    titles = [edit.request.title for edit in edits if edit.kind == "title"]
    chat = memory_pb2.GetChatRequest(chat_id=chat_id)
    read = await judge.try_until_answered(lambda: judge.memory.GetChat(chat, timeout=CALL_S))
    if titles and (read is None or read.title != titles[-1]):
        problems.append(f"chat {chat_id} was given the title {titles[-1]!r}, and is {read or judge.refusal}")
    pinning = [edit.kind for edit in edits if edit.kind in ("pin", "unpin")]
    # Models no longer see the pinned message.
    is_reverted = any(line["_type"] == "revert" and not line["toCheckpointId"] for line in lines)
    if pinning and not is_reverted:
        pins = memory_pb2.ListPinsRequest(chat_id=chat_id)
        listed = await judge.try_until_answered(lambda: judge.memory.ListPins(pins, timeout=CALL_S))
        if listed is None or bool(listed.pins) != (pinning[-1] == "pin"):
            problems.append(f"chat {chat_id}: the last of {pinning} was answered, and pinned is {listed}")
    return problems
