"""The lines of a chat's log file (docs/reference/chat-log.md; Chat Memory V3.1).

Each is a JSON object. Parts that only views need stay raw JSON until a view reads them. A line ends with a checksum:
CRC-32 of the line without it, as its last member, so that a disk that returns other bytes than were written is noticed.
Lines of older versions have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, TypeAlias, get_args
from zlib import crc32

import msgspec
from msgspec import Meta, Raw, Struct, field
from msgspec.structs import force_setattr

from headrace.v1 import common_pb2, memory_pb2
from services.memory.log.messages import Range, StoredMessage, Tokens
from services.memory.log.raw_json import ABSENT, ERROR_FIELDS, GATE_EVENT, QUERY_FIELDS, Int64, load_proto
from services.runtime.auth import identity
from services.runtime.formats.same_fields import copy_fields
from services.runtime.randomness import new_uuid

ERASED_PREFIX = "erased-"
"""Begins the names that stand in place of erased users' in the lines of their runs (docs/decisions/0027-erasing.md)."""

COUNT_MAX = 10**15
"""Greatest number of a charge: a million US dollars for a model call, more tokens than anybody has used. Greater ones
count as this one, and negative ones as 0."""


class Charge(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    agent_key: str = ""
    model: str = ""
    """The model that was asked, as provider/model; empty where it is not known."""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    model_calls: int = 0
    cost_nano_usd: int = 0
    """Billionths of a US dollar: a short answer of a cheap model costs a few thousand."""
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0
    estimated: bool = False

    def __post_init__(self) -> None:
        # Whoever serves a model says what it has used, and sums must stay numbers that every index takes.
        for name in _COUNTS:
            if not 0 <= (count := getattr(self, name)) <= COUNT_MAX:
                force_setattr(self, name, min(max(count, 0), COUNT_MAX))


_COUNTS = tuple(name for name in Charge.__struct_fields__ if name.endswith(("_tokens", "_calls", "_usd")))


def decode_charges(given: Iterable[memory_pb2.Charge]) -> list[Charge]:
    return [Charge(*(getattr(charge, name) for name in Charge.__struct_fields__)) for charge in given]


def encode_charges(charges: Iterable[Charge]) -> Iterator[memory_pb2.Charge]:
    for charge in charges:
        yield copy_fields(charge, memory_pb2.Charge)


class Learned(Struct, frozen=True, gc=False):
    model: str
    ratio: float


class Stamped(Struct, tag_field="_type", omit_defaults=True, kw_only=True, rename="camel"):
    """Fields of every line; number and time are set at commit."""

    n: Int64 = field(name="_n")
    """Number of the line in the file, from 1, without gaps."""
    uuid: str
    """A unique id; in an append's first line the request id."""
    chat_id: str
    run_id: str = ""
    updated_at: Int64
    tenant: str = field(name="_tenant")
    user: str = field(name="_user")
    generation: Int64 = field(name="_gen")
    lines: Annotated[int, Meta(ge=1)] = field(default=1, name="_lines")
    """In an append's first line its number of lines, valid only together; else 1."""
    batch: Int64 = field(default=0, name="_batch")
    """Number of the first line of the write to the file that brought this one, too; 0 for that line itself."""
    charges: list[Charge] | None = field(default=None, name="_charges")
    """What the run has been charged since its line before this one; None: nothing, or it is a log of earlier versions,
    whose runs say at their end alone what they have cost."""


class Query(Stamped, kw_only=True, tag="query"):
    query: Raw
    agent_hash: str = field(default="", name="_agentHash")
    traceparent: str = field(default="", name="_traceparent")
    credential: str = field(default="", name="_credential")
    """How the user was proven, as Identity says."""
    makers: tuple[str, ...] = field(default=(), name="_makers")
    """Who knows the user's API key, as Identity says."""
    agent_version: int = field(default=0, name="_agentVersion")
    """The version of the agent that the run is pinned to; 0: none."""
    agent_version_hash: str = field(default="", name="_agentVersionHash")
    tokens: Tokens | None = field(default=None, name="_tokens")
    owner: str = field(default="", name="_owner")
    """In a chat's first query the user whose chat it is, where that is another than who asks in it: in a copy that a
    participant has made. Empty: who asks."""


STAGES_BEFORE_ANSWER = frozenset({"plan", "execute", "work"})
"""Stages whose text is no part of their run's answer."""


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
    reminders: dict[str, str] = field(default={}, name="_reminders")
    """What its model was told beside what was said, behind the message before this step's."""


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
    output: Raw = ABSENT
    recording: str | None = None
    """The blob with the recording."""
    recording_problem: str | None = None


class Insight(Stamped, kw_only=True, tag="insight"):
    context_id: str | None = None
    text: str
    tool_call_id: str | None = None
    """The call whose result it replaces; may be absent."""


class Intent(Stamped, kw_only=True, tag="intent"):
    context_id: str | None = None
    text: str


class CompactReceipt(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The range that a compaction replaced, and how much of it its summariser saw."""

    first_line: int
    last_line: int
    covered_tokens: int
    seen_tokens: int
    model_calls: int
    unseen: list[tuple[int, int]] = []
    """First and last lines of what it did not see all of."""
    cached_ratio: float | None = None
    """Share of its input that was cached; None if no provider said."""
    pinned: list[str] = []
    usage: Raw = ABSENT
    """What its model calls have spent; absent if none was made."""
    replaced_messages: int = 0
    kept_messages: int = 0


class CompactMetadata(Struct, frozen=True, rename="camel", omit_defaults=True):
    trigger: str
    """Cause of the compaction: auto or manual."""
    pre_tokens: int
    post_tokens: int
    files_included: list[str]
    strategy: str
    """Way of the compaction: summary or fallback; failed where nothing was compacted, but a model was paid."""
    receipt: CompactReceipt | None = None
    """None in lines of earlier versions."""
    reason: str = ""
    """Why there is no summary; empty where there is one, and in lines of earlier versions."""


FAILED = "failed"


class CompactBoundary(Stamped, kw_only=True, tag="compact_boundary"):
    """A compaction, in force once a summary names it as parent."""

    # Written always and given no default that says the same: a default is left out of the file.
    type: str = ""
    subtype: str = ""
    role: str = ""
    content: str = ""
    parent_uuid: str = ""
    """The context's boundary before it or a later revert: no other has come since; empty: the first."""
    compact_metadata: CompactMetadata
    context_id: str | None = None
    redactions: int = field(default=0, name="_redactions")
    """Number of runs of erased users in the log that it was made from."""

    @property
    def has_failed(self) -> bool:
        """Whether it has changed nothing, and only says what the try has cost."""
        return self.compact_metadata.strategy == FAILED


class RetainedFrom(Struct, frozen=True, gc=False):
    n: int
    message: int


class CompactSummary(Stamped, kw_only=True, tag="compact_summary"):
    parent_uuid: str
    logical_parent_uuid: str = ""
    """The last line that it summarises."""
    role: str = ""
    is_compact_summary: bool = False
    content: str
    retained_from: RetainedFrom = field(name="_retainedFrom")
    tokens: Tokens | None = field(default=None, name="_tokens")


class Revert(Stamped, kw_only=True, tag="revert"):
    """A return of the views to a checkpoint; with scope model only of those for a model."""

    to_checkpoint_id: int
    scope: str


class State(Stamped, kw_only=True, tag="state"):
    context_id: str | None = None
    version: Int64
    changed: dict[str, Raw] = field(name="set")
    removed: list[str] = field(name="unset")


class Pin(Stamped, kw_only=True, tag="pin"):
    """A message that a person has pinned, or does not want pinned any more."""

    target: int
    """Number of the message's line."""
    text: str = ""
    """The message, word for word; empty for a pin that is taken back."""


class SummaryEdit(Stamped, kw_only=True, tag="summary_edit"):
    """Another text for a summary, by a person."""

    parent_uuid: str
    """The summary."""
    content: str


class Title(Stamped, kw_only=True, tag="title"):
    """Another title for the chat, by a person or a model; reverts leave it."""

    text: str = ""
    """Empty: the first words of the first message again."""
    if_untitled: bool = False
    """Whether it was for a chat without a title alone; with one, no such line is appended."""


class Sharing(Stamped, kw_only=True, tag="sharing"):
    """Who else may read the chat, and take part in it, by its owner; reverts leave it."""

    shared_with: list[str] = []
    """Who may read it: names as in rules for gates, in order, each once."""
    participants: list[str] = []
    """Who of them may take part."""


class Revocation(Stamped, kw_only=True, tag="revocation"):
    """The end of a grant before its time; reverts leave it. In a copy of the chat each grant has one."""

    grant_id: str
    by: str = ""
    """The user who has ended it; empty: nobody, as the chat is a copy."""
    credential: str = ""
    """How that user was proven, as Identity says."""


class Unknown(Struct, rename="camel"):
    """A line of an unknown kind, which keeps its place and is never shown."""

    kind: str = field(name="_type")
    n: Int64 = field(name="_n")
    uuid: str
    chat_id: str
    updated_at: Int64
    run_id: str = ""
    lines: Annotated[int, Meta(ge=1)] = field(default=1, name="_lines")
    batch: Int64 = field(default=0, name="_batch")


Known: TypeAlias = (
    Query
    | Step
    | Event
    | Run
    | Insight
    | Intent
    | CompactBoundary
    | CompactSummary
    | Revert
    | State
    | Pin
    | SummaryEdit
    | Title
    | Sharing
    | Revocation
)
Line: TypeAlias = Known | Unknown

_KINDS = frozenset(str(kind.__struct_config__.tag) for kind in get_args(Known))
_KNOWN: msgspec.json.Decoder[Known] = msgspec.json.Decoder(Known)
_UNKNOWN = msgspec.json.Decoder(Unknown)
_ENCODER = msgspec.json.Encoder()


def make_stamp(chat_id: str, run_id: str = "", generation: int = 0, *, request_id: str = "") -> dict[str, Any]:
    """Make the fields that every line has; an empty request id becomes a new one."""
    writer = identity.require_identity()
    return {
        "n": 0,
        "uuid": request_id or new_uuid(),
        "chat_id": chat_id,
        "run_id": run_id,
        "updated_at": 0,
        "tenant": writer.tenant,
        "user": writer.user,
        "generation": generation,
    }


def encode_line(line: Known) -> bytes:
    return add_checksum(encode_json(line)) + b"\n"


def encode_json(line: Known) -> bytes:
    """Encode a line without checksum and line break."""
    return _ENCODER.encode(line)


def decode_line(data: bytes) -> Line | None:
    """Decode a line that is not encrypted, without its line break; None if it is not valid, or not what was written."""
    try:
        data = remove_checksum(data)
        data.decode()  # msgspec does not look into the strings of Raw fields
        try:
            known = _KNOWN.decode(data)
        except msgspec.ValidationError:
            line = _UNKNOWN.decode(data)
            return None if line.kind in _KINDS else line
        _check_raw(known)
        return known
    except (ValueError, TypeError, RecursionError):
        return None


def _check_raw(line: Known) -> None:
    """Raise ValueError or TypeError for a line of whose raw JSON the index cannot be made."""
    match line:
        case Query():
            QUERY_FIELDS.decode(line.query)
        case Event():
            GATE_EVENT.decode(line.event)
        case Run():
            if line.error:
                ERROR_FIELDS.decode(line.error)
            if line.usage:
                load_proto(line.usage, common_pb2.Usage())
        case _:
            pass


_MEMBER = b',"_crc":"%08x"}'
_START = _MEMBER[:9]
_SIZE = len(_MEMBER % 0)


class WrongChecksum(ValueError):
    """A line is not what was written."""


def add_checksum(line: bytes) -> bytes:
    """Return a JSON object that has members, without a line break, with its checksum."""
    return line[:-1] + _MEMBER % crc32(line)


def has_checksum(line: bytes) -> bool:
    return line[-_SIZE:-10] == _START and line.endswith(b'"}')


def remove_checksum(line: bytes) -> bytes:
    """Return the line as it was before `add_checksum`; one without a checksum as it is.

    Raises:
        WrongChecksum: The line has another checksum than its bytes.
    """
    if not has_checksum(line):
        return line
    rest = line[:-_SIZE] + b"}"
    if line[-_SIZE:] != _MEMBER % crc32(rest):
        raise WrongChecksum
    return rest
