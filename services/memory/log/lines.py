"""The lines of a chat's log file (docs/reference/chat-log.md; Chat Memory V3.1).

Each is a JSON object. Parts that only views need stay raw JSON until a view reads them. A line ends with a checksum as
its last member, the CRC-32 of the line without it, to detect disks that return other bytes than were written. Lines of
older versions have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter
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
"""Prefix of the names that replace erased users' in the lines of their runs (docs/decisions/0027-erasing.md)."""

COUNT_MAX = 10**15
"""Maximum number in a charge: a million US dollars for a model call, more tokens than anyone has used. Larger ones are
reduced to it, and negative ones become 0."""


class Charge(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    agent_key: str = ""
    model: str = ""
    """The called model, as provider/model; empty if unknown."""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    model_calls: int = 0
    cost_nano_usd: int = 0
    """Billionths of a US dollar; a short answer of a cheap model costs a few thousand."""
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0
    estimated: bool = False

    def __post_init__(self) -> None:
        # Model servers report usage freely, but sums must stay within the range of every index.
        for name in _COUNTS:
            if not 0 <= (count := getattr(self, name)) <= COUNT_MAX:
                force_setattr(self, name, min(max(count, 0), COUNT_MAX))


_COUNTS = tuple(name for name in Charge.__struct_fields__ if name.endswith(("_tokens", "_calls", "_usd")))


_get_fields = attrgetter(*Charge.__struct_fields__)


def decode_charges(given: Iterable[memory_pb2.Charge]) -> list[Charge]:
    return [Charge(*_get_fields(charge)) for charge in given]


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
    """In an append's first line, the number of its lines, which are valid only together; else 1."""
    batch: Int64 = field(default=0, name="_batch")
    """Number of the first line of the same write to the file; 0 for that line itself."""
    charges: list[Charge] | None = field(default=None, name="_charges")
    """Charges of the run since its previous line. None: no charges, or an older log, whose runs record their cost only
    at the end."""


class Query(Stamped, kw_only=True, tag="query"):
    query: Raw
    agent_hash: str = field(default="", name="_agentHash")
    traceparent: str = field(default="", name="_traceparent")
    credential: str = field(default="", name="_credential")
    """How the user was authenticated, as in Identity."""
    makers: tuple[str, ...] = field(default=(), name="_makers")
    """Users who know the user's API key, as in Identity."""
    agent_version: int = field(default=0, name="_agentVersion")
    """The version of the agent that the run is pinned to; 0: not pinned."""
    agent_version_hash: str = field(default="", name="_agentVersionHash")
    tokens: Tokens | None = field(default=None, name="_tokens")
    owner: str = field(default="", name="_owner")
    """In a chat's first query, the chat's owner if it is not the user who asks: in a copy made by a participant. Empty:
    the user who asks."""


STAGES_BEFORE_ANSWER = frozenset({"plan", "execute", "work"})
"""Stages with text that is not part of their run's answer."""


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
    """Reminders that its model received after the message before this step's."""


class Event(Stamped, kw_only=True, tag="event"):
    context_id: str | None = None
    event: Raw


class Run(Stamped, kw_only=True, tag="run"):
    state: str
    finish_reason: str | None = None
    error: Raw = ABSENT
    usage: Raw = ABSENT
    events: Range = field(name="_events")
    """The terminal event's number, as first and last."""
    output: Raw = ABSENT
    recording: str | None = None
    """The blob with the recording."""
    recording_problem: str | None = None

    @property
    def reason(self) -> str:
        """The finish reason, or the error's code."""
        return self.finish_reason or (ERROR_FIELDS.decode(self.error).code if self.error else "")


class Insight(Stamped, kw_only=True, tag="insight"):
    context_id: str | None = None
    text: str
    tool_call_id: str | None = None
    """The call with the replaced result; may be absent."""


class Intent(Stamped, kw_only=True, tag="intent"):
    context_id: str | None = None
    text: str


class CompactReceipt(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The range that a compaction replaced, and how much of it its summarizer saw."""

    first_line: int
    last_line: int
    covered_tokens: int
    seen_tokens: int
    model_calls: int
    unseen: list[tuple[int, int]] = []
    """First and last lines of the ranges that were not seen completely."""
    cached_ratio: float | None = None
    """Share of its input that was cached; None if not reported."""
    pinned: list[str] = []
    usage: Raw = ABSENT
    """Usage of its model calls; absent if there were none."""
    replaced_messages: int = 0
    kept_messages: int = 0


class CompactMetadata(Struct, frozen=True, rename="camel", omit_defaults=True):
    trigger: str
    """Cause of the compaction: auto or manual."""
    pre_tokens: int
    post_tokens: int
    files_included: list[str]
    strategy: str
    """Result of the compaction: summary or fallback; failed if nothing was compacted but a model was paid."""
    receipt: CompactReceipt | None = None
    """None in lines of earlier versions."""
    reason: str = ""
    """Why there is no summary; empty if there is one, and in lines of earlier versions."""


FAILED = "failed"


class CompactBoundary(Stamped, kw_only=True, tag="compact_boundary"):
    """A compaction, in force once a summary names it as parent."""

    # Written always and given no default that says the same: a default is left out of the file.
    type: str = ""
    subtype: str = ""
    role: str = ""
    content: str = ""
    parent_uuid: str = ""
    """The context's previous boundary or a later revert, which is still the latest; empty for the first."""
    compact_metadata: CompactMetadata
    context_id: str | None = None
    redactions: int = field(default=0, name="_redactions")
    """Number of redacted runs of erased users in the log that it was made from."""

    @property
    def has_failed(self) -> bool:
        """Whether it changed nothing, and only records the attempt's cost."""
        return self.compact_metadata.strategy == FAILED


class RetainedFrom(Struct, frozen=True, gc=False):
    n: int
    message: int


class CompactSummary(Stamped, kw_only=True, tag="compact_summary"):
    parent_uuid: str
    logical_parent_uuid: str = ""
    """The last line that it summarizes."""
    role: str = ""
    is_compact_summary: bool = False
    content: str
    retained_from: RetainedFrom = field(name="_retainedFrom")
    tokens: Tokens | None = field(default=None, name="_tokens")


class Revert(Stamped, kw_only=True, tag="revert"):
    """A return of the views to a checkpoint; with scope model, only of the views for a model."""

    to_checkpoint_id: int
    scope: str


class State(Stamped, kw_only=True, tag="state"):
    context_id: str | None = None
    version: Int64
    changed: dict[str, Raw] = field(name="set")
    removed: list[str] = field(name="unset")


class Pin(Stamped, kw_only=True, tag="pin"):
    """A message that a person has pinned or unpinned."""

    target: int
    """Number of the message's line."""
    text: str = ""
    """The message, verbatim; empty when unpinned."""


class SummaryEdit(Stamped, kw_only=True, tag="summary_edit"):
    """A person's replacement for a summary's text."""

    parent_uuid: str
    """The summary."""
    content: str


class Title(Stamped, kw_only=True, tag="title"):
    """A new title for the chat, from a person or a model; reverts do not affect it."""

    text: str = ""
    """Empty: the first words of the first message again."""
    if_untitled: bool = False
    """Whether it applies only to a chat without a title; if there is one, the line is not appended."""


class Sharing(Stamped, kw_only=True, tag="sharing"):
    """The users with whom the owner shares the chat, to read or participate; reverts do not affect it."""

    shared_with: list[str] = []
    """Users who may read it: names as in rules for gates, sorted, without duplicates."""
    participants: list[str] = []
    """The users among them who may participate."""


class Revocation(Stamped, kw_only=True, tag="revocation"):
    """The early end of a grant; reverts do not affect it. A copy of the chat has one for each grant."""

    grant_id: str
    by: str = ""
    """The user who ended it; empty in a copy of the chat."""
    credential: str = ""
    """How that user was authenticated, as in Identity."""


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
    """Return the fields that every line has; an empty request id is replaced by a new one."""
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
    """Decode an unencrypted line without its line break; None if it is invalid, or has changed since it was written."""
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
    """Raise ValueError or TypeError for a line with raw JSON that the index cannot use."""
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
    """A line differs from what was written."""


def add_checksum(line: bytes) -> bytes:
    """Return a non-empty JSON object, without line break, with its checksum."""
    return line[:-1] + _MEMBER % crc32(line)


def has_checksum(line: bytes) -> bool:
    return line[-_SIZE:-10] == _START and line.endswith(b'"}')


def remove_checksum(line: bytes) -> bytes:
    """Return the argument of `add_checksum`; a line without a checksum is returned unchanged.

    Raises:
        WrongChecksum: The checksum does not match the bytes.
    """
    if not has_checksum(line):
        return line
    rest = line[:-_SIZE] + b"}"
    if line[-_SIZE:] != _MEMBER % crc32(rest):
        raise WrongChecksum
    return rest
