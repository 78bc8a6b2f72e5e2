"""The lines of a chat's log as they stand in its file (docs/reference/chat-log.md; Chat Memory V3.1).

One JSON object a line. What only the views need (a query, a plan, usage, an event) is kept as the JSON it is and
read when a view asks for it.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias, get_args

import msgspec
from msgspec import Meta, Raw, Struct, field

ABSENT = Raw()
"""JSON that is not there: false, and left out. `Raw | None` would take null and nothing else (msgspec 0.22)."""


class Range(Struct, frozen=True, gc=False):
    """Numbers of events, both ends included."""

    first: int = field(name="from")
    last: int = field(name="to")


class TextPart(Struct, frozen=True, gc=False, tag_field="type", tag="text"):
    text: str


class ImageUrl(Struct, frozen=True, gc=False, omit_defaults=True):
    url: str
    detail: str = ""


class ImagePart(Struct, frozen=True, gc=False, tag_field="type", tag="image_url"):
    image_url: ImageUrl


Part: TypeAlias = TextPart | ImagePart


class Function(Struct, frozen=True, gc=False):
    name: str
    arguments: str
    """JSON text of an object, always."""


class Call(Struct, frozen=True, gc=False, tag_field="type", tag="function"):
    id: str
    function: Function


class Timing(Struct, frozen=True, gc=False, rename="camel"):
    """Unix milliseconds."""

    started_at: int
    ended_at: int


class Tokens(Struct, frozen=True, gc=False):
    """The cost of a message in a request, counted once, when it was appended."""

    encoding: str
    count: int


class Learned(Struct, frozen=True, gc=False):
    """The ratio of a model's own tokens to our counts."""

    model: str
    ratio: float


class StoredMessage(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A message of a step. The pieces of one model answer share msg_id, and each has one of the three contents."""

    # Flat, though it has 21 fields: it is the record of the file format, which msgspec reads and writes without a step
    # between. Parts of their own would be nested in the JSON too, or cost a conversion for every message.
    role: str
    content: list[Part] | None = None
    reasoning_content: list[TextPart] | None = None
    tool_calls: list[Call] | None = None
    name: str | None = None
    tool_call_id: str | None = None
    ts: int = 0
    raw_arguments: str | None = field(default=None, name="_rawArguments")
    """The arguments that the model wrote, if they are no JSON object."""
    reasoning_id: str | None = field(default=None, name="_reasoningId")
    content_id: str | None = field(default=None, name="_contentId")
    msg_id: str | None = field(default=None, name="_msgId")
    tool_id: str | None = field(default=None, name="_toolId")
    action_id: str | None = field(default=None, name="_actionId")
    tool_params: Raw = field(default=ABSENT, name="_toolParams")
    ok: bool | None = field(default=None, name="_ok")
    timing: Timing | None = field(default=None, name="_timing")
    usage: Raw = field(default=ABSENT, name="_usage")
    finish_reason: str | None = field(default=None, name="_finishReason")
    provider_state: Raw = field(default=ABSENT, name="_providerState")
    events: Range | None = field(default=None, name="_events")
    tokens: Tokens | None = field(default=None, name="_tokens")
    """The cost of this piece as a message of its own; absent in older logs."""


class Stamped(Struct, tag_field="_type", omit_defaults=True, kw_only=True, rename="camel"):
    """The fields of every line. A line gets its number and time when it is committed."""

    n: int = field(name="_n")
    """Its number in the file, from 1, without gaps."""
    uuid: str
    """A unique id; in an append's first line the append's request id."""
    chat_id: str
    run_id: str = ""
    updated_at: int
    tenant: str = field(name="_tenant")
    user: str = field(name="_user")
    generation: int = field(name="_gen")
    lines: Annotated[int, Meta(ge=1)] = field(default=1, name="_lines")
    """In an append's first line the number of its lines, which count together or not at all; 1 in the others."""


class Query(Stamped, kw_only=True, tag="query"):
    query: Raw
    agent_hash: str = field(default="", name="_agentHash")
    traceparent: str = field(default="", name="_traceparent")
    tokens: Tokens | None = field(default=None, name="_tokens")


class Step(Stamped, kw_only=True, tag="step"):
    stage: str = field(name="_stage")
    seq: int = field(name="_seq")
    task_id: str | None = None
    context_id: str | None = None
    system: str | None = None
    plan: Raw = ABSENT
    messages: list[StoredMessage]
    events: Range | None = field(default=None, name="_events")
    learned: Learned | None = field(default=None, name="_learned")


class Event(Stamped, kw_only=True, tag="event"):
    context_id: str | None = None
    event: Raw


class Run(Stamped, kw_only=True, tag="run"):
    state: str
    finish_reason: str | None = None
    error: Raw = ABSENT
    usage: Raw = ABSENT
    events: Range = field(name="_events")
    """The terminal event's number, twice."""


class Insight(Stamped, kw_only=True, tag="insight"):
    context_id: str | None = None
    text: str
    tool_call_id: str | None = None
    """The call whose result it stands for; absent: of no single one."""


class Intent(Stamped, kw_only=True, tag="intent"):
    context_id: str | None = None
    text: str


class CompactMetadata(Struct, frozen=True, gc=False, rename="camel"):
    trigger: str
    """auto or manual."""
    pre_tokens: int
    post_tokens: int
    files_included: list[str]
    strategy: str
    """summary or fallback."""


class CompactBoundary(Stamped, kw_only=True, tag="compact_boundary"):
    """A compaction, in force with the summary that names it as its parent."""

    # Written always and given no default that says the same: a default is left out of the file.
    type: str = ""
    subtype: str = ""
    role: str = ""
    content: str = ""
    parent_uuid: str = ""
    compact_metadata: CompactMetadata
    context_id: str | None = None


class RetainedFrom(Struct, frozen=True, gc=False):
    """The first position that stands beside a summary."""

    n: int
    message: int


class CompactSummary(Stamped, kw_only=True, tag="compact_summary"):
    parent_uuid: str
    """The boundary."""
    logical_parent_uuid: str = ""
    """The last line that it stands for."""
    role: str = ""
    is_compact_summary: bool = False
    content: str
    retained_from: RetainedFrom = field(name="_retainedFrom")
    tokens: Tokens | None = field(default=None, name="_tokens")


class Revert(Stamped, kw_only=True, tag="revert"):
    """The views show the log as it was at a checkpoint; with scope model only those for a model do."""

    to_checkpoint_id: int
    scope: str


class State(Stamped, kw_only=True, tag="state"):
    """A change of a context's session state."""

    context_id: str | None = None
    version: int
    """The version of the state that the line makes."""
    changed: dict[str, Raw] = field(name="set")
    removed: list[str] = field(name="unset")


class Unknown(Struct, rename="camel"):
    """A line of a kind that this version does not know: it keeps its place, and no view shows it."""

    kind: str = field(name="_type")
    n: int = field(name="_n")
    uuid: str
    chat_id: str
    updated_at: int
    run_id: str = ""
    lines: Annotated[int, Meta(ge=1)] = field(default=1, name="_lines")


Known: TypeAlias = Query | Step | Event | Run | Insight | Intent | CompactBoundary | CompactSummary | Revert | State
Line: TypeAlias = Known | Unknown

_KINDS = frozenset(str(kind.__struct_config__.tag) for kind in get_args(Known))
_KNOWN: msgspec.json.Decoder[Known] = msgspec.json.Decoder(Known)
_UNKNOWN = msgspec.json.Decoder(Unknown)
_ENCODER = msgspec.json.Encoder()


def encode_line(line: Known) -> bytes:
    """Encode the line as it stands in the file, its line break included."""
    return _ENCODER.encode(line) + b"\n"


def decode_line(data: bytes) -> Line | None:
    """Decode a line without its line break; None if it is no line."""
    try:
        data.decode()  # msgspec does not look into the strings of Raw fields
        try:
            return _KNOWN.decode(data)
        except msgspec.ValidationError:
            line = _UNKNOWN.decode(data)
            return None if line.kind in _KINDS else line
    except (ValueError, RecursionError):
        return None
