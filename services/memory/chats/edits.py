"""A chat's checkpoints as people see them: a page, the latest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import InvalidRequest, NotFound, OutOfRange, StaleLease
from headrace.v1 import memory_pb2
from services.memory.context.scopes import ContextScope, find_changes, list_pins
from services.memory.context.source import is_compact_command, list_compactions
from services.memory.log.lines import Pin, Query, Step, SummaryEdit
from services.memory.log.messages import join_text
from services.memory.log.raw_json import QUERY_FIELDS
from services.memory.log.stamps import make_stamp

if TYPE_CHECKING:
    from services.memory.context.source import AppliedCompaction
    from services.memory.log.chat import Chat
    from services.memory.log.lines import Line


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


PINNED_CHARS_MAX = 8000
"""Some 2,000 tokens, which stand in every request of the chat."""


def make_pin_line(chat: Chat, request: memory_pb2.PinMessageRequest) -> Pin | None:
    """Make the line that pins a message, or takes its pin back; None if nothing has to change.

    Raises:
        NotFound: The line is not there, or has no text. OutOfRange: There would be too much pinned text.
    """
    if is_as_asked(chat, request):
        return None
    pins = list_pins(chat.model_runs.get("", ()))
    text = "" if request.remove else _find_text(chat, request.n)
    chars = len(text) + sum(len(pin.text) for pin in pins)
    if text and chars > PINNED_CHARS_MAX:
        raise OutOfRange(
            f"the pinned messages would have {chars:,} characters, and may have {PINNED_CHARS_MAX:,}: take a pin back",
            chatId=chat.chat_id,
        )
    stamped = make_stamp(chat.chat_id, request_id=request.request_id)
    return Pin(**stamped, target=request.n, text=text)


def is_as_asked(chat: Chat, request: memory_pb2.PinMessageRequest) -> bool:
    return (request.n in {pin.target for pin in list_pins(chat.model_runs.get("", ()))}) != request.remove


def list_pinned(chat: Chat) -> memory_pb2.ListPinsResponse:
    pins = list_pins(chat.model_runs.get("", ()))
    said = {pin.target: chat.log[pin.target - 1] for pin in pins}
    return memory_pb2.ListPinsResponse(
        pins=[
            memory_pb2.Pin(
                n=pin.target,
                text=pin.text,
                created_at=pin.updated_at,
                run_id=said[pin.target].run_id,
                role="user" if isinstance(said[pin.target], Query) else "assistant",
            )
            for pin in pins
        ]
    )


def get_summary(chat: Chat) -> memory_pb2.GetSummaryResponse:
    """Return the summary; number 0 if nothing was compacted."""
    compaction = _find_compaction(chat)
    if compaction is None:
        return memory_pb2.GetSummaryResponse()
    edit = find_changes(chat.model_runs.get("", ()), compaction.summary.uuid, 0).edit
    return memory_pb2.GetSummaryResponse(
        n=compaction.summary.n,
        text=compaction.summary.content if edit is None else edit.content,
        edited_n=None if edit is None else edit.n,
        retained_from_n=compaction.start.n,
    )


def make_edit_line(chat: Chat, request: memory_pb2.EditSummaryRequest) -> SummaryEdit:
    """Raises StaleLease if the chat has another summary by now, or none."""
    compaction = _find_compaction(chat)
    if compaction is None or compaction.summary.n != request.n:
        raise StaleLease(f"line {request.n} is not the chat's summary; get it and change it again", chatId=chat.chat_id)
    stamped = make_stamp(chat.chat_id, request_id=request.request_id)
    return SummaryEdit(**stamped, parent_uuid=compaction.summary.uuid, content=request.text)


def _find_compaction(chat: Chat) -> AppliedCompaction | None:
    compactions = list_compactions(chat.model_runs.values(), ContextScope(None))
    return compactions[-1] if compactions else None


def _find_text(chat: Chat, n: int) -> str:
    line = next((line for lines in chat.visible_runs.values() for line in lines if line.n == n), None)
    text = _read_text(line)
    if not text:
        raise NotFound(f"line {n} of chat {chat.chat_id} is no message with a text", chatId=chat.chat_id)
    return text


def _read_text(line: Line | None) -> str:
    if isinstance(line, Query):
        text = QUERY_FIELDS.decode(line.query).message
        return "" if is_compact_command(text) else text  # no model is shown it
    if isinstance(line, Step):
        texts = (join_text(message.content) for message in line.messages if message.role != "tool")
        return "\n".join(filter(None, texts))
    return ""
