"""People's edits of a chat: reverts to its checkpoints, pinned messages, its summary, and its session state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import InvalidRequest, NotFound, OutOfRange, StaleLease
from headrace.v1 import memory_pb2
from headrace.v1.memory_pb2_grpc import MemoryServiceServicer
from services.memory.context.scopes import ContextScope, find_changes, list_compactions, list_pins
from services.memory.context.source import is_compact_command
from services.memory.log.chat import Span
from services.memory.log.chat_info import SCOPE_ALL
from services.memory.log.lines import Pin, Query, Revert, Step, SummaryEdit, make_stamp
from services.memory.log.messages import join_text
from services.memory.log.raw_json import QUERY_FIELDS
from services.memory.log.views import get_context_key, make_state_line

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from services.memory.chats.access import ChatAccess
    from services.memory.context.scopes import AppliedCompaction
    from services.memory.log.chat import Chat
    from services.memory.log.lines import Known, Line
    from services.memory.storage.engine import Engine
    from services.runtime.rpc.interceptors import Context

PAGE_SIZE, PAGE_SIZE_MAX = 50, 200

TEXT_CHARS_MAX = 200

QUERY, STEP = "query", "step"

PINNED_CHARS_MAX = 8000
"""Maximum characters of pinned text, some 2,000 tokens, which every request of the chat carries."""


class EditRpcs(MemoryServiceServicer):
    """RPCs of the memory service with which people edit a chat."""

    _engine: Engine
    _access: ChatAccess

    async def ListCheckpoints(
        self, request: memory_pb2.ListCheckpointsRequest, context: Context
    ) -> memory_pb2.ListCheckpointsResponse:
        """A page token is the id of the last checkpoint on the previous page."""
        chat = await self._access.load_chat(request.chat_id)
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
            checkpoints=[_describe_checkpoint(checkpoint, line) for checkpoint, line in page],
            next_page_token=str(page[-1][0]) if len(matches) > size else "",
        )

    async def Revert(self, request: memory_pb2.RevertRequest, context: Context) -> memory_pb2.RevertResponse:
        # Runs revert on their own behalf; any other revert needs the chat's owner.
        load = self._access.load_working_chat if request.run_id else self._access.load_chat
        chat = await load(request.chat_id)
        stamped = make_stamp(request.chat_id, request.run_id, request.generation, request_id=request.request_id)
        if stamped["uuid"] not in chat.appends:
            _check_position(chat, request)
        line = Revert(**stamped, to_checkpoint_id=request.checkpoint_id, scope=request.scope or SCOPE_ALL)
        return memory_pb2.RevertResponse(n=await append_line(self._engine, line, request))

    async def PinMessage(
        self, request: memory_pb2.PinMessageRequest, context: Context
    ) -> memory_pb2.PinMessageResponse:
        def is_as_asked(chat: Chat) -> bool:
            return (request.n in {pin.target for pin in _list_pins(chat)}) != request.remove

        chat = await self._access.load_changed_chat(request.chat_id, request.request_id, is_as_asked)
        if request.request_id in chat.appends:
            return memory_pb2.PinMessageResponse(n=chat.appends[request.request_id].first_n)
        if is_as_asked(chat):
            return memory_pb2.PinMessageResponse()
        line = _make_pin_line(chat, request)
        return memory_pb2.PinMessageResponse(n=await append_line(self._engine, line, request))

    async def ListPins(self, request: memory_pb2.ListPinsRequest, context: Context) -> memory_pb2.ListPinsResponse:
        chat = await self._access.load_chat(request.chat_id)
        response = memory_pb2.ListPinsResponse()
        for pin in _list_pins(chat):
            line = chat.log[pin.target - 1]
            role = "user" if isinstance(line, Query) else "assistant"
            response.pins.add(n=pin.target, text=pin.text, created_at=pin.updated_at, run_id=line.run_id, role=role)
        return response

    async def GetSummary(
        self, request: memory_pb2.GetSummaryRequest, context: Context
    ) -> memory_pb2.GetSummaryResponse:
        chat = await self._access.load_chat(request.chat_id)
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

    async def EditSummary(
        self, request: memory_pb2.EditSummaryRequest, context: Context
    ) -> memory_pb2.EditSummaryResponse:
        chat = await self._access.load_changed_chat(request.chat_id, request.request_id)
        if request.request_id in chat.appends:
            return memory_pb2.EditSummaryResponse(n=chat.appends[request.request_id].first_n)
        compaction = _find_compaction(chat)
        if compaction is None or compaction.summary.n != request.n:
            message = f"line {request.n} is not the chat's summary; get it and change it again"
            raise StaleLease(message, chatId=chat.chat_id)
        stamped = make_stamp(chat.chat_id, request_id=request.request_id)
        line = SummaryEdit(**stamped, parent_uuid=compaction.summary.uuid, content=request.text)
        return memory_pb2.EditSummaryResponse(n=await append_line(self._engine, line, request))

    async def GetState(self, request: memory_pb2.GetStateRequest, context: Context) -> memory_pb2.GetStateResponse:
        state = (await self._access.load_working_chat(request.chat_id)).get_state(get_context_key(request.context_id))
        return memory_pb2.GetStateResponse(version=state.version, state=state.json)

    async def UpdateState(
        self, request: memory_pb2.UpdateStateRequest, context: Context
    ) -> memory_pb2.UpdateStateResponse:
        chat = await self._access.load_working_chat(request.chat_id)
        stamped = make_stamp(request.chat_id, request.run_id, request.generation)
        line = make_state_line(stamped, chat.get_state(get_context_key(request.context_id)), request)
        await self._engine.chats.append(request.chat_id, [line], request.ByteSize())
        return memory_pb2.UpdateStateResponse(version=line.version)


async def append_line(engine: Engine, line: Known, request: Message) -> int:
    """Append a line other than a query; return its number."""
    _, answer = await engine.chats.append(line.chat_id, [line], request.ByteSize())
    assert isinstance(answer, Span), "only a query can repeat another"
    return answer.first_n


def _check_position(chat: Chat, request: memory_pb2.RevertRequest) -> None:
    """Raise NotFound if the checkpoint has moved to another line since the caller listed it."""
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


def _describe_checkpoint(checkpoint: int, line: Query | Step) -> memory_pb2.Checkpoint:
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


def _list_pins(chat: Chat) -> list[Pin]:
    return list_pins(chat.model_runs.get("", ()))


def _make_pin_line(chat: Chat, request: memory_pb2.PinMessageRequest) -> Pin:
    """Create the line that pins or unpins a message.

    Raises:
        NotFound: The line does not exist, or has no text.
        OutOfRange: The pinned text would exceed its limit.
    """
    text = ""
    if not request.remove:
        shown = (line for lines in chat.visible_runs.values() for line in lines)
        text = _read_text(next((line for line in shown if line.n == request.n), None))
        if not text:
            raise NotFound(f"line {request.n} of chat {chat.chat_id} is no message with a text", chatId=chat.chat_id)
    chars = len(text) + sum(len(pin.text) for pin in _list_pins(chat))
    if text and chars > PINNED_CHARS_MAX:
        raise OutOfRange(
            f"the pinned messages would have {chars:,} characters, and may have {PINNED_CHARS_MAX:,}: take a pin back",
            chatId=chat.chat_id,
        )
    stamped = make_stamp(chat.chat_id, request_id=request.request_id)
    return Pin(**stamped, target=request.n, text=text)


def _find_compaction(chat: Chat) -> AppliedCompaction | None:
    compactions = list_compactions(chat.model_runs.values(), ContextScope(None))
    return compactions[-1] if compactions else None


def _read_text(line: Line | None) -> str:
    if isinstance(line, Query):
        text = QUERY_FIELDS.decode(line.query).message
        return "" if is_compact_command(text) else text  # no model is shown it
    if isinstance(line, Step):
        texts = (join_text(message.content) for message in line.messages if message.role != "tool")
        return "\n".join(filter(None, texts))
    return ""
