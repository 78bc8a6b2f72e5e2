"""Messages in the form that steps store: pieces of answers, calls and results, converted from and to protos."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Raw, Struct, field

from headrace.errors import InvalidRequest
from headrace.v1 import llm_pb2, memory_pb2
from services.memory.log.media import Blob, copy_message, extract_blob, get_media
from services.memory.log.raw_json import ABSENT, Int64, dump_proto, embed_json
from services.runtime.formats.json_form import is_object


class Range(Struct, frozen=True, gc=False):
    """Event numbers, both ends included."""

    first: Int64 = field(name="from")
    last: Int64 = field(name="to")


class TextPart(Struct, frozen=True, gc=False, tag_field="type", tag="text"):
    text: str


class ImageUrl(Struct, frozen=True, gc=False, omit_defaults=True):
    url: str
    detail: str = ""


class ImagePart(Struct, frozen=True, gc=False, tag_field="type", tag="image_url"):
    image_url: ImageUrl


class AudioUrl(Struct, frozen=True, gc=False):
    url: str


class AudioPart(Struct, frozen=True, gc=False, tag_field="type", tag="input_audio"):
    input_audio: AudioUrl


class FileUrl(Struct, frozen=True, gc=False, omit_defaults=True):
    url: str
    filename: str = ""


class FilePart(Struct, frozen=True, gc=False, tag_field="type", tag="file"):
    file: FileUrl


Part: TypeAlias = TextPart | ImagePart | AudioPart | FilePart


class Function(Struct, frozen=True, gc=False):
    name: str
    arguments: str
    """JSON text, always an object."""


class Call(Struct, frozen=True, gc=False, tag_field="type", tag="function"):
    id: str
    function: Function


class Timing(Struct, frozen=True, gc=False, rename="camel"):
    """Start and end of a call, in Unix milliseconds."""

    started_at: int
    ended_at: int


class Tokens(Struct, frozen=True, gc=False):
    encoding: str
    count: int


class StoredMessage(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A message of a step. Pieces of one model answer share msg_id and have one content each."""

    # Flat, despite its 22 fields: it is the record of the file format, which msgspec reads and writes directly. Nested
    # parts would also nest the JSON, or cost a conversion per message.
    role: str
    content: list[Part] | None = None
    reasoning_content: list[TextPart] | None = None
    tool_calls: list[Call] | None = None
    name: str | None = None
    tool_call_id: str | None = None
    ts: int = 0
    raw_arguments: str | None = field(default=None, name="_rawArguments")
    """The model's arguments, if they are not a JSON object."""
    reasoning_id: str | None = field(default=None, name="_reasoningId")
    content_id: str | None = field(default=None, name="_contentId")
    msg_id: str | None = field(default=None, name="_msgId")
    tool_id: str | None = field(default=None, name="_toolId")
    action_id: str | None = field(default=None, name="_actionId")
    tool_params: Raw = field(default=ABSENT, name="_toolParams")
    tool: Raw = field(default=ABSENT, name="_tool")
    """The call's tool, a ToolDetails; absent in older logs."""
    ok: bool | None = field(default=None, name="_ok")
    timing: Timing | None = field(default=None, name="_timing")
    usage: Raw = field(default=ABSENT, name="_usage")
    finish_reason: str | None = field(default=None, name="_finishReason")
    provider_state: Raw = field(default=ABSENT, name="_providerState")
    events: Range | None = field(default=None, name="_events")
    tokens: Tokens | None = field(default=None, name="_tokens")
    """Token count of this piece as a separate message; absent in older logs."""


def encode_message(
    given: memory_pb2.LogMessage,
    path: str,
    action_tools: frozenset[str],
    blobs: list[Blob],
    count: Callable[[llm_pb2.Message], Tokens],
) -> StoredMessage:
    """Convert `given` for the log, adding large parts to `blobs`; `path` names it in an error.

    Raises:
        InvalidRequest: It does not fit its role.
    """
    message = given.message
    _check_message(message, path)
    call = message.tool_calls[0] if message.tool_calls else None
    is_whole = call is None or is_object(call.arguments)
    counted = message
    if not is_whole:
        counted = copy_message(message)
        counted.tool_calls[0].arguments = "{}"
    is_action = given.HasField("action_id") or (call.name if call else message.name) in action_tools
    event_id = (given.action_id or given.tool_id) or None
    return StoredMessage(
        role=message.role,
        content=[encode_part(part, path, blobs) for part in message.content] or None,
        reasoning_content=[TextPart(message.reasoning_content)] if message.HasField("reasoning_content") else None,
        tool_calls=[Call(call.id, Function(call.name, call.arguments if is_whole else "{}"))] if call else None,
        name=message.name or None,
        tool_call_id=message.tool_call_id if message.HasField("tool_call_id") else None,
        ts=given.ts,
        raw_arguments=None if call is None or is_whole else call.arguments,
        reasoning_id=given.reasoning_id or None,
        content_id=given.content_id or None,
        msg_id=given.msg_id or None,
        tool_id=None if is_action else event_id,
        action_id=event_id if is_action else None,
        tool_params=embed_json(given.tool_params) if given.tool_params else ABSENT,
        tool=dump_proto(given.tool) if given.HasField("tool") else ABSENT,
        ok=given.ok if given.HasField("ok") else None,
        timing=Timing(given.timing.started_at, given.timing.ended_at) if given.HasField("timing") else None,
        usage=dump_proto(given.usage) if given.HasField("usage") else ABSENT,
        finish_reason=given.finish_reason or None,
        provider_state=embed_json(message.provider_state) if message.provider_state else ABSENT,
        events=encode_range(given),
        tokens=count(counted),
    )


def encode_range(given: memory_pb2.LogMessage | memory_pb2.StepLine | memory_pb2.RunLine) -> Range | None:
    return Range(given.events.first_seq, given.events.last_seq) if given.HasField("events") else None


def decode_content(parts: list[Part] | None) -> list[llm_pb2.ContentPart]:
    return [_decode_part(part) for part in parts or ()]


def _decode_part(part: Part) -> llm_pb2.ContentPart:
    match part:
        case TextPart():
            return llm_pb2.ContentPart(text=part.text)
        case ImagePart():
            image = llm_pb2.ImagePart(url=part.image_url.url, detail=part.image_url.detail)
            return llm_pb2.ContentPart(image=image)
        case AudioPart():
            return llm_pb2.ContentPart(audio=llm_pb2.AudioPart(url=part.input_audio.url))
        case FilePart():
            return llm_pb2.ContentPart(file=llm_pb2.FilePart(url=part.file.url, name=part.file.filename))


def join_text(parts: list[Part] | list[TextPart] | None) -> str:
    return "".join(part.text for part in parts or () if isinstance(part, TextPart))


def _check_message(message: llm_pb2.Message, path: str) -> None:
    has_reasoning = message.HasField("reasoning_content")
    if message.role == "assistant":
        if bool(message.content) + has_reasoning + len(message.tool_calls) != 1:
            rule = "must have exactly one of content, reasoningContent and one tool call in an assistant message"
            raise InvalidRequest.of(path, rule)
    elif message.role == "system":
        raise InvalidRequest.of(f"{path}.role", "must be user, assistant or tool: a step keeps its system apart")
    elif not message.content or has_reasoning or message.tool_calls:
        raise InvalidRequest.of(path, f"must have content, and that alone, in a {message.role} message")
    if (message.role == "tool") != message.HasField("tool_call_id"):
        raise InvalidRequest.of(f"{path}.toolCallId", "must be set in tool messages, and only there")


def encode_part(part: llm_pb2.ContentPart, path: str, blobs: list[Blob]) -> Part:
    """Return a part as it is stored; its own content is added to `blobs`. Raises InvalidRequest."""
    if part.WhichOneof("part") == "text":
        return TextPart(part.text)
    given = get_media(part)
    if given is None:
        raise InvalidRequest.of(path, "must have no empty part")
    blob = extract_blob(given, path)
    if blob is not None:
        blobs.append(blob)
    url = given.url if blob is None else blob.reference
    match given:
        case llm_pb2.ImagePart():
            return ImagePart(ImageUrl(url, given.detail))
        case llm_pb2.AudioPart():
            return AudioPart(AudioUrl(url))
        case llm_pb2.FilePart():
            return FilePart(FileUrl(url, given.name))
