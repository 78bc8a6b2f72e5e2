"""The requests of a compaction: one that continues the context's own request, else chunks of the conversation as
text."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from headrace.v1 import llm_pb2, memory_pb2
from services.memory.compaction.prompt import (
    PART,
    PARTS,
    build_instruction,
    build_part_request,
    build_wishes,
    describe_fault,
    fit_files,
)
from services.memory.compaction.receipt import find_former_lines
from services.memory.compaction.transcript import Chunk, Entry, cut_chunks, list_entries
from services.memory.context.pairing import make_text_message
from services.memory.context.token_counter import get_answer_tokens, get_request_tokens_max, get_window_tokens
from services.memory.context.view import build_messages

if TYPE_CHECKING:
    from services.memory.compaction.draft import CompactionDraft
    from services.memory.context.pairing import MessageGroup
    from services.memory.context.token_counter import TokenCounter

TEMPERATURE = 0.2
"""Low, because a summary must be accurate, not varied."""

CALLS_MAX = 32
"""Default maximum of model calls per compaction."""

CALLS_SPARE = 2
"""Calls reserved for repeating answers that are not summaries, if there are many calls."""

ANSWER_RATIO = 0.25
"""Share of a small window reserved for the summary of a part."""

ANSWER_TOKENS_MAX = 2000

SUMMARY_TOKENS_MAX = 16_000
"""Maximum answer to a request for everything, including reasoning; a longer one is requested again."""

ROOM_TOKENS_MIN = 100
"""Minimum tokens in addition to the instruction for a window to hold any conversation."""

MARGIN_RATIO = 0.95
"""Share of a window filled with chunks; texts are counted in pieces, and for some models estimated."""


@dataclass(frozen=True, slots=True)
class SummaryCall:
    """A request for a summary."""

    request: llm_pb2.ChatRequest
    input_tokens: int

    def complain(self, fault: str, text: str) -> SummaryCall:
        """Return the same call with a description of its answer's fault; all messages but the last are unchanged."""
        request = llm_pb2.ChatRequest()
        request.CopyFrom(self.request)
        request.messages[-1].content.add(text=f"\n\n{describe_fault(fault, text)}")
        return SummaryCall(request, self.input_tokens)


@dataclass(frozen=True, slots=True)
class PartSummary:
    first: int
    last: int
    text: str


@dataclass(frozen=True)
class SummaryRequests:
    """Builds the requests of one draft, in threads because it counts with the summarizer's `counter`."""

    draft: CompactionDraft
    counter: TokenCounter

    @property
    def calls_max(self) -> int:
        return min(self.draft.request.summary_calls_max or CALLS_MAX, CALLS_MAX)

    @cached_property
    def _model(self) -> memory_pb2.ModelLimits:
        given = self.draft.request
        return given.summary_model if given.HasField("summary_model") else given.limits

    @cached_property
    def _wishes(self) -> list[str]:
        return build_wishes(self.draft.request)

    def build_whole(self) -> tuple[SummaryCall, int] | None:
        """Build one request for everything; return it and its number of message groups, or None if it does not fit.

        System, tools and messages equal the context's own requests, so that a prefix cache hits. The kept messages are
        included if they fit.
        """
        given, counter = self.draft.request, self.counter
        tokens_max = min(get_request_tokens_max(self._model), given.summary_request_tokens_max or sys.maxsize)
        room = counter.from_model_tokens(tokens_max) - counter.count_frame(given.system, given.tools)
        room -= counter.count_message(make_text_message("user", build_instruction((), self._wishes)))
        for count in sorted({len(self.draft.groups), self.draft.plan.start}, reverse=True):
            groups = [*([] if self.draft.former is None else [self.draft.former]), *self.draft.groups[:count]]
            left = room - counter.count_groups(groups)
            if left >= 0:
                return self._build_whole(groups, left), count
        return None

    def _build_whole(self, groups: Sequence[MessageGroup], left: int) -> SummaryCall:
        given, counter = self.draft.request, self.counter
        files = fit_files(given.files, left, counter.count_text)
        last = make_text_message("user", build_instruction(files, self._wishes))
        request = self._make_request([*build_messages(given.system, groups), last])
        request.tools.extend(given.tools)
        if given.tools:
            request.tool_choice = "none"
        tokens_max = min(get_answer_tokens(self._model), SUMMARY_TOKENS_MAX)
        request.max_tokens = min(tokens_max, given.summary_tokens_max or tokens_max)
        count = (
            counter.count_frame(given.system, given.tools) + counter.count_groups(groups) + counter.count_message(last)
        )
        return SummaryCall(request, counter.to_model_tokens(count))

    @cached_property
    def entries(self) -> list[Entry]:
        """Everything that the summary must cover, the former summary first."""
        entries = list(list_entries(self.draft.plan.replaced, self.counter.count_text))
        if (former := self.draft.source.compacted) is None:
            return entries
        first, last = find_former_lines(former)
        label = f"summary of lines {first} to {last}"
        summary = Entry(first, last, label, former.text, self.counter.count_text(former.text))
        return [summary, *entries]

    def cut_chunks(self) -> list[Chunk]:
        """Cut the conversation into chunks such that the calls suffice to summarize each, and to merge the
        summaries."""
        spare = CALLS_SPARE if self.calls_max > 2 * CALLS_SPARE else 0
        chunks = self.calls_max - spare
        while chunks > 1 and chunks + self.count_merges(chunks) > self.calls_max - spare:
            chunks -= 1
        if self._room < ROOM_TOKENS_MIN:
            return []
        return cut_chunks(self.entries, self._room, chunks, self.counter.count_text)

    def count_merges(self, parts: int) -> int:
        """Return the number of calls that merge `parts` into one summary, as many per call as a request holds."""
        fan_in, calls = max(2, self._room // (self._answer_tokens + 1)), 0
        while parts > 1:
            parts = -(-parts // fan_in)
            calls += parts
        return calls

    def build_part(self, chunk: Chunk) -> SummaryCall:
        first, last = chunk.find_lines(self.entries)
        return self._build_part(PART, first, last, chunk.text)

    def group_parts(self, parts: Sequence[PartSummary]) -> list[list[PartSummary]]:
        """Group adjacent summaries so that each group fits in one request."""
        groups: list[list[PartSummary]] = []
        left = 0
        for part in parts:
            cost = self.counter.count_text(format_part(part)) + 1
            if cost > left or not groups:
                groups.append([])
                left = self._room
            groups[-1].append(part)
            left -= cost
        return groups

    def build_merge(self, parts: Sequence[PartSummary]) -> SummaryCall:
        return self._build_part(PARTS, parts[0].first, parts[-1].last, "\n\n".join(map(format_part, parts)))

    def _build_part(self, template: str, first: int, last: int, text: str) -> SummaryCall:
        message = make_text_message("user", build_part_request(template, first, last, text, self._wishes))
        request = self._make_request([message])
        request.max_tokens = self.counter.to_model_tokens(self._answer_tokens)
        return SummaryCall(
            request,
            self.counter.to_model_tokens(self.counter.count_frame("", ()) + self.counter.count_message(message)),
        )

    def _make_request(self, messages: Sequence[llm_pb2.Message]) -> llm_pb2.ChatRequest:
        return llm_pb2.ChatRequest(
            provider_key=self._model.provider_key,
            model=self._model.model,
            messages=messages,
            temperature=TEMPERATURE,
            stage="compact",
        )

    @cached_property
    def _answer_tokens(self) -> int:
        """Unscaled tokens reserved for the summary of a part."""
        window = get_window_tokens(self._model)
        tokens = min(get_answer_tokens(self._model), int(ANSWER_RATIO * window), ANSWER_TOKENS_MAX)
        return self.counter.from_model_tokens(min(tokens, self.draft.request.summary_tokens_max or sys.maxsize))

    @cached_property
    def _room(self) -> int:
        """Unscaled tokens of conversation that fit into a request."""
        given, counter = self.draft.request, self.counter
        window = int(MARGIN_RATIO * get_window_tokens(self._model)) - counter.to_model_tokens(self._answer_tokens)
        tokens_max = min(window, given.summary_request_tokens_max or sys.maxsize)
        frame = make_text_message("user", build_part_request(PARTS, 10**6, 10**6, "", self._wishes))
        return counter.from_model_tokens(tokens_max) - counter.count_frame("", ()) - counter.count_message(frame)


def format_part(part: PartSummary) -> str:
    return f"[summary of lines {part.first} to {part.last}]\n{part.text}"
