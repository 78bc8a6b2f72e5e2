"""ReadHistory and ReadResult: a context's original messages, whatever its requests still show of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import orjson

from headrace.errors import InvalidRequest, NotFound
from headrace.v1 import llm_pb2, memory_pb2
from services.memory.context.source import select_whole
from services.memory.log.media import describe_media, get_media, name_reader, read_media
from services.memory.storage.search import TERMS_MAX, compute_rarity, find_place, fold, split_terms

if TYPE_CHECKING:
    from services.memory.context.pairing import PairedMessage
    from services.memory.log.lines import Line
    from services.memory.log.media import FindBlob

CHARS_MAX, CHARS_DEFAULT = 100_000, 10_000

PART_RATIO = 4
"""Inverse of the maximum share of the requested characters per message, unless only one was requested."""

READERS = frozenset({"read_history", "read_result"})
"""The orchestrator's tools for these RPCs, excluded so that a search does not find itself or earlier results."""

CUT = "\n[… {:,} characters left out …]\n"


@dataclass(frozen=True, slots=True)
class _LoggedMessage:
    paired: PairedMessage
    line: Line

    @property
    def text(self) -> str:
        return join_content(self.paired.message, name_reader(self.paired.message, self.line.n))

    def describe(self, chars_max: int, terms: Sequence[str], *, shows_media: bool) -> memory_pb2.HistoryMessage:
        message = self.paired.message
        text = join_content(message) if shows_media else self.text
        return memory_pb2.HistoryMessage(
            n=self.line.n,
            run_id=self.line.run_id,
            timestamp=self.line.updated_at,
            role=message.role,
            text=cut_around(text, chars_max, terms),
            chars=len(text),
            tool_calls=message.tool_calls,
            tool_call_id=message.tool_call_id,
            name=message.name,
        )


def read_history(
    runs: Mapping[str, Sequence[Line]], request: memory_pb2.ReadHistoryRequest, find: FindBlob
) -> memory_pb2.ReadHistoryResponse:
    """Read messages by line numbers or by words, up to the requested characters.

    Raises:
        NotFound: The chat has no such run.
        InvalidRequest: A number is out of bounds.
    """
    if request.first_n < 0 or request.last_n < 0:
        raise InvalidRequest.of("firstN" if request.first_n < 0 else "lastN", "must not be negative")
    room = _read_chars_max(request.chars_max)
    found = [
        entry
        for entry in _list_messages(runs, request.run_id, request.context_id or None)
        if request.first_n <= entry.line.n and (not request.last_n or entry.line.n <= request.last_n)
    ]
    terms = [fold(term) for term in split_terms(request.query)[:TERMS_MAX]]
    if request.query:
        found, terms = _rank(found, terms)
    part = room if len(found) == 1 else room // PART_RATIO
    response = memory_pb2.ReadHistoryResponse()
    shows_media = 0 < request.first_n == request.last_n
    for index, entry in enumerate(found):
        message = entry.describe(min(part, room) if index else part, terms, shows_media=shows_media)
        room -= len(message.text) + sum(len(call.arguments) for call in message.tool_calls)
        if room < 0 and index:
            response.left_out = len(found) - index
            response.next_n = 0 if request.query else entry.line.n
            break
        response.messages.append(message)
    if shows_media:
        response.media.extend(read_media((entry.paired.message for entry in found), find))
    return response


def read_result(
    runs: Mapping[str, Sequence[Line]], request: memory_pb2.ReadResultRequest, find: FindBlob
) -> memory_pb2.ReadResultResponse:
    """Read a part of a call's result.

    Raises:
        NotFound: The context has no result of the call, or the chat has no such run.
        InvalidRequest: A number is out of bounds.
    """
    if request.offset < 0:
        raise InvalidRequest.of("offset", "must not be negative")
    chars_max = _read_chars_max(request.chars_max)
    answers = [
        entry
        for entry in _list_messages(runs, request.run_id, request.context_id or None)
        if entry.paired.message.role == "tool" and entry.paired.message.tool_call_id == request.tool_call_id
    ]
    if not answers:
        raise NotFound(
            f"no call {request.tool_call_id!r} of this context has a result", toolCallId=request.tool_call_id
        )
    text = join_content(answers[-1].paired.message)
    return memory_pb2.ReadResultResponse(
        text=text[request.offset : request.offset + chars_max],
        chars=len(text),
        n=answers[-1].line.n,
        name=answers[-1].paired.message.name,
        media=[] if request.offset else read_media([answers[-1].paired.message], find),
    )


def join_content(message: llm_pb2.Message, where: str = "") -> str:
    """Return the text of a message, with descriptions of other content; `where` is the call that shows that content."""
    media = ((part, get_media(part)) for part in message.content)
    return "".join(part.text if given is None else describe_media(given, where) for part, given in media)


def cut_around(text: str, chars_max: int, terms: Sequence[str]) -> str:
    """Return the part of `text` around the first of `terms` found in it; if none is, its beginning and end."""
    folded = fold(text)
    at = next((found for term in terms if (found := folded.find(term)) >= 0), -1)
    if len(text) <= chars_max or at < 0:
        return cut_middle(text, chars_max)
    at = find_place(text, folded, at)
    start = max(0, min(at - chars_max // 3, len(text) - chars_max))
    after = len(text) - start - chars_max
    before = CUT.format(start) if start else ""
    return before + text[start : start + chars_max] + (CUT.format(after) if after else "")


def cut_middle(text: str, chars_max: int) -> str:
    """Return `text`; if it is too long, with a note in place of its middle, which `chars_max` does not count."""
    if len(text) <= chars_max:
        return text
    head = chars_max * 2 // 3
    return text[:head] + CUT.format(len(text) - chars_max) + text[len(text) - (chars_max - head) :]


def _list_messages(runs: Mapping[str, Sequence[Line]], run_id: str, context_id: str | None) -> Iterator[_LoggedMessage]:
    """Yield all messages of a context in line order, including those of earlier runs."""
    source = select_whole(runs, run_id, context_id)
    by_number = {line.n: line for lines in (*source.before, source.lines) for line in lines}
    messages = [paired for group in source.read_log() for paired in (group.head, *group.results.values())]
    for paired in sorted(messages, key=lambda paired: paired.at or (0, 0)):
        if paired.at is not None:
            yield _LoggedMessage(paired, by_number[paired.at.n])


def _rank(found: Sequence[_LoggedMessage], terms: Sequence[str]) -> tuple[list[_LoggedMessage], list[str]]:
    """Return the messages with any word of the query, ranked by the rarity of their words, then the latest first; and
    the words found, the rarest first."""
    held: list[tuple[_LoggedMessage, list[str]]] = []
    for entry in found:
        message = entry.paired.message
        if not READERS.intersection((message.name, *(call.name for call in message.tool_calls))):
            arguments = (_unescape(call.arguments) for call in message.tool_calls)
            text = fold(f"{entry.text} {' '.join(arguments)}")
            held.append((entry, [term for term in terms if term in text]))
    counts = Counter(chain.from_iterable(of_text for _, of_text in held))
    weights = {term: compute_rarity(count, len(held)) for term, count in counts.items()}
    scores = [sum(map(weights.__getitem__, of_text)) for _, of_text in held]
    ranked = sorted(((score, index) for index, score in enumerate(scores) if score), reverse=True)
    return [held[index][0] for _, index in ranked], sorted(weights, key=weights.__getitem__, reverse=True)


def _read_chars_max(given: int) -> int:
    if not 0 <= given <= CHARS_MAX:
        raise InvalidRequest.of("charsMax", f"must be 1 to {CHARS_MAX:,}, or 0 for {CHARS_DEFAULT:,}")
    return given or CHARS_DEFAULT


def _unescape(arguments: str) -> str:
    """Return arguments with their letters, which some models write as escapes of JSON."""
    if "\\u" not in arguments:
        return arguments
    try:
        return orjson.dumps(orjson.loads(arguments)).decode()
    except ValueError:
        return arguments
