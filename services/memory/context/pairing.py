"""Converts a run's stored messages into ones that a model accepts.

The pieces of one answer become one assistant message, an unanswered call gets a typed result, and an unrequested result
is dropped. Equal lines give equal bytes, which keeps a provider's prefix cache hitting.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from headrace.v1 import llm_pb2
from services.memory.log.media import copy_message
from services.memory.log.messages import decode_content
from services.runtime.formats.own_tags import format_reminder, has_tag, neutralise_tag

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from services.memory.log.messages import StoredMessage, Tokens

LEFT_OUT = "left out"
"""The form of a notice about lines left out, followed by their numbers."""


def format_notice(first_n: int, last_n: int) -> str:
    lines = f"{first_n}-{last_n}"
    return f"[Lines {lines} of this chat are left out here, without a summary: read_history {lines} has them.]"


WITHOUT_REASONING = "without reasoning"

SPOKEN = "with speaker"
"""The form of a whole message in a chat with several speakers, marked by queries.py."""

QUOTE = "quoted"
"""The form of a message that quotes another user's earlier messages; queries.py marks it with that user."""

WHOLE = ("", WITHOUT_REASONING, SPOKEN, QUOTE)
"""Forms of messages that are shown unchanged."""

SUMMARY = "summary"

INTERRUPTED = '{"ok":false,"error":"interrupted"}'
"""Result that a model sees for a call without one."""

Reasoning: TypeAlias = Literal["all", "of calls", "none"]
"""The answers whose reasoning is shown."""


class Position(NamedTuple):
    n: int
    message: int


@dataclass(slots=True)
class PairedMessage:
    message: llm_pb2.Message
    at: Position | None
    """Position of the first piece; None if it is not in a log."""
    pieces: int = 1
    form: str = ""
    """How it differs from the stored message, such as "shortened"; empty if unchanged."""
    is_error: bool = False
    tokens: list[Tokens | None] = field(default_factory=list["Tokens | None"])
    """Logged token counts of its pieces; None if missing or invalid for this form."""


@dataclass(slots=True)
class MessageGroup:
    """A message and its calls' results, which are kept or dropped together."""

    head: PairedMessage
    msg_id: str | None = None
    results: dict[int, PairedMessage] = field(default_factory=dict[int, PairedMessage])
    """Logged results, by the position of their call."""

    hidden: tuple[int, int] | None = None
    """First and last line of the run that later runs do not see, which its message mentions; None if all are
    visible."""

    is_question: bool = False
    """Whether the user or the caller of a sub-agent wrote it, not a mode or a note of an uploaded file."""

    reminders: list[Mapping[str, str]] = field(default_factory=list["Mapping[str, str]"])
    """Reminders that followed it, by key, one mapping for each request."""

    @property
    def role(self) -> str:
        return self.head.message.role

    @property
    def is_open(self) -> bool:
        return len(self.results) < len(self.head.message.tool_calls)

    def list_messages(self) -> list[PairedMessage]:
        """Return the message, then exactly one result for each call, in call order."""
        calls = self.head.message.tool_calls
        return [
            self.head,
            *(self.results.get(index) or _make_interrupted_result(call) for index, call in enumerate(calls)),
        ]

    def build_messages(self) -> list[llm_pb2.Message]:
        """Return the messages in the form for a model, the last one with the reminders."""
        messages = [_mark_outside(paired.message) for paired in self.list_messages()]
        texts = [format_reminder(reminder.values()) for reminder in self.reminders]
        if not texts:
            return messages
        if messages[-1].role == "assistant":
            return [*messages, make_text_message("user", "\n\n".join(texts))]
        last = copy_message(messages[-1])
        for text in texts:
            last.content.add(text=text)
        return [*messages[:-1], last]


class MessagePairing:
    """Joins and pairs the messages of a run, added in log order."""

    def __init__(self, reasoning: Reasoning) -> None:
        """Without reasoning, its text and the provider's data for it are dropped, because another provider may have
        answered."""
        self._reasoning = reasoning
        self._units: list[MessageGroup] = []
        self._open: dict[str, list[tuple[MessageGroup, int]]] = {}
        """Unanswered calls by id; ids may repeat between answers."""

    def add_query(self, text: str, at: Position, tokens: Tokens | None, form: str = "") -> None:
        """Add the text of a query, or as a QUOTE the earlier messages in another user's query."""
        paired = PairedMessage(make_text_message("user", text), at, form=form, tokens=[tokens])
        self._units.append(MessageGroup(paired, is_question=form != QUOTE))

    def add_messages(
        self, messages: Sequence[StoredMessage], n: int, first: int = 0, *, asked: Collection[str] | None = None
    ) -> None:
        """Add messages of line `n`, the first at position `first`; those with role system are skipped.

        Messages with role user are questions; if `asked` is given, only those with one of its texts.
        """
        for index, message in enumerate(messages, first):
            at = Position(n, index)
            match message.role:
                case "assistant":
                    self._add_answer(message, at)
                case "tool":
                    self._add_result(message, at)
                case "system":
                    pass
                case _:
                    copy = llm_pb2.Message(role="user", content=decode_content(message.content))
                    is_question = asked is None or "".join(part.text for part in copy.content) in asked
                    paired = PairedMessage(copy, at, tokens=[message.tokens])
                    self._units.append(MessageGroup(paired, is_question=is_question))

    def list_groups(self) -> list[MessageGroup]:
        """Return all groups except those with only reasoning, which providers refuse."""
        groups = [group for group in self._units if group.head.message.content or group.head.message.tool_calls]
        if self._reasoning == "of calls":
            for group in groups:
                if not group.head.message.tool_calls:
                    _drop_reasoning(group.head)
        return groups

    def add_reminders(self, texts: Mapping[str, str]) -> None:
        """Add the reminders that followed the last message."""
        if texts and self._units:
            self._units[-1].reminders.append(texts)

    def _add_answer(self, piece: StoredMessage, at: Position) -> None:
        group = self._units[-1] if self._units else None
        if group is None or piece.msg_id is None or group.msg_id != piece.msg_id or group.results:
            group = MessageGroup(PairedMessage(llm_pb2.Message(role="assistant"), at, 0), piece.msg_id)
            self._units.append(group)
        group.head.pieces += 1
        message = group.head.message
        # An empty text says nothing, and some providers refuse it.
        message.content.extend(
            part for part in decode_content(piece.content) if part.WhichOneof("part") != "text" or part.text
        )
        self._add_reasoning(group.head, piece)
        for call in piece.tool_calls or ():
            waiting = self._open.setdefault(call.id, [])
            if waiting and waiting[0][0] is not group:
                waiting.clear()  # a later answer uses the id again: the earlier call will get no result any more
            waiting.append((group, len(message.tool_calls)))
            message.tool_calls.add(id=call.id, name=call.function.name, arguments=call.function.arguments)

    def _add_reasoning(self, paired: PairedMessage, piece: StoredMessage) -> None:
        if self._reasoning == "none":
            if piece.reasoning_content:
                paired.form = WITHOUT_REASONING
            else:
                paired.tokens.append(piece.tokens)
            return
        # Two texts of reasoning are joined to one, which may cost less than they do.
        is_joined = bool(piece.reasoning_content and paired.message.reasoning_content)
        paired.tokens.append(None if is_joined else piece.tokens)
        if piece.reasoning_content:
            paired.message.reasoning_content += "".join(part.text for part in piece.reasoning_content)
        if piece.provider_state:
            paired.message.provider_state = bytes(piece.provider_state).decode()

    def _add_result(self, piece: StoredMessage, at: Position) -> None:
        call_id = piece.tool_call_id or ""
        if waiting := self._open.get(call_id):
            group, index = waiting.pop(0)
            result = _make_result(call_id, group.head.message.tool_calls[index].name)
            result.content.extend(decode_content(piece.content) or [llm_pb2.ContentPart(text="")])
            group.results[index] = PairedMessage(result, at, is_error=piece.ok is False, tokens=[piece.tokens])


def _drop_reasoning(paired: PairedMessage) -> None:
    message = paired.message
    if message.reasoning_content:
        paired.form, paired.tokens = WITHOUT_REASONING, []
    message.ClearField("reasoning_content")
    message.ClearField("provider_state")


def make_text_message(role: str, text: str) -> llm_pb2.Message:
    return llm_pb2.Message(role=role, content=[llm_pb2.ContentPart(text=text)])


def flatten_groups(groups: Iterable[MessageGroup]) -> list[llm_pb2.Message]:
    return [message for group in groups for message in group.build_messages()]


def _mark_outside(message: llm_pb2.Message) -> llm_pb2.Message:
    """Return the message with reminder tags in external text neutralised; the same object if there are none."""
    if not any(has_tag(part.text, "system_reminder") for part in message.content):
        return message
    marked = copy_message(message)
    for part in marked.content:
        if part.WhichOneof("part") == "text":
            part.text = neutralise_tag(part.text, "system_reminder")
    return marked


def _make_interrupted_result(call: llm_pb2.ToolCall) -> PairedMessage:
    result = _make_result(call.id, call.name)
    result.content.add(text=INTERRUPTED)
    return PairedMessage(result, None)


def _make_result(call_id: str, name: str) -> llm_pb2.Message:
    return llm_pb2.Message(role="tool", tool_call_id=call_id, name=name)
