"""A chat's checkpoints as people see them: a page, the latest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import InvalidRequest, NotFound
from headrace.v1 import memory_pb2
from services.memory.log.lines import Query, Step
from services.memory.log.messages import join_text
from services.memory.log.views.raw_fields import QUERY_FIELDS

if TYPE_CHECKING:
    from services.memory.log.chat import Chat

PAGE_SIZE, PAGE_SIZE_MAX = 50, 200

TEXT_CHARS_MAX = 200

QUERY, STEP = "query", "step"


def list_checkpoints(chat: Chat, request: memory_pb2.ListCheckpointsRequest) -> memory_pb2.ListCheckpointsResponse:
    """Return a page; its token is the id of the last checkpoint shown.

    Raises:
        InvalidRequest: The size or the token is not valid.
    """
    if not 0 <= request.page_size <= PAGE_SIZE_MAX:
        raise InvalidRequest.of("pageSize", f"must be 1 to {PAGE_SIZE_MAX}, or 0 for {PAGE_SIZE}")
    token = request.page_token
    if token and not (token.isascii() and token.isdecimal()):
        raise InvalidRequest.of("pageToken", "must be the nextPageToken of an earlier answer")
    lines = chat.list_checkpoints()
    matches = [
        (checkpoint, line)
        for checkpoint, line in enumerate(lines[: int(token)] if token else lines)
        if request.run_id in ("", line.run_id) and request.kind in ("", _get_kind(line))
    ]
    size = request.page_size or PAGE_SIZE
    page = matches[::-1][:size]
    return memory_pb2.ListCheckpointsResponse(
        checkpoints=[_describe(checkpoint, line) for checkpoint, line in page],
        next_page_token=str(page[-1][0]) if len(matches) > size else "",
    )


def check_position(chat: Chat, request: memory_pb2.RevertRequest) -> None:
    """Raise NotFound if the caller's checkpoint is before another line than when it was listed."""
    if not request.HasField("n"):
        return
    lines, wanted = chat.list_checkpoints(), request.checkpoint_id
    if 0 <= wanted < len(lines) and lines[wanted].n != request.n:
        raise NotFound(
            f"checkpoint {wanted} of chat {chat.chat_id} is before line {lines[wanted].n} by now, not before"
            f" {request.n}; list them again",
            chatId=chat.chat_id,
            checkpointId=wanted,
        )


def _get_kind(line: Query | Step) -> str:
    return QUERY if isinstance(line, Query) else STEP


def _describe(checkpoint: int, line: Query | Step) -> memory_pb2.Checkpoint:
    described = memory_pb2.Checkpoint(
        checkpoint_id=checkpoint, n=line.n, run_id=line.run_id, kind=_get_kind(line), created_at=line.updated_at
    )
    if isinstance(line, Query):
        text = QUERY_FIELDS.decode(line.query).message
    else:
        text = " ".join(
            filter(None, (join_text(message.content) for message in line.messages if message.role != "tool"))
        )
        described.stage = line.stage
        described.tools.extend(call.function.name for message in line.messages for call in message.tool_calls or ())
        if line.context_id is not None:
            described.context_id = line.context_id
    described.text = text[:TEXT_CHARS_MAX]
    return described
