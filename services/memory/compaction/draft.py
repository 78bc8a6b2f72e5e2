"""The summary request and the lines of a compaction, worked out without waiting."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from headrace.v1 import llm_pb2, memory_pb2
from services.memory.compaction import context_files as context_files
from services.memory.compaction.plan import (
    DUE_RATIO,
    FALLBACK_RATIO,
    GAIN_RATIO,
    RETAINED_RATIO,
    CompactionPlan,
    is_broken,
    make_plan,
)
from services.memory.compaction.prompt import build_content, build_instruction, extract_summary
from services.memory.context.context_source import get_position, select_source
from services.memory.context.context_view import UNBOUNDED, ContextWindow, build_messages, build_view
from services.memory.context.message_pairing import MessageGroup, make_text_message
from services.memory.context.token_limits import get_request_tokens_max
from services.memory.context.truncation import truncate_groups

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from services.memory.context.context_source import ContextSource
    from services.memory.context.token_counter import TokenCounter
    from services.memory.log.lines import Line, Tokens

TEMPERATURE = 0.2
"""Low, because a summary must be true, not varied."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    plan: CompactionPlan
    content: str
    content_tokens: Tokens
    files: list[str]
    tokens: int
    """Tokens of the compacted context."""


@dataclass(frozen=True)
class CompactionDraft:
    """A compaction in progress, used by one task at a time, in threads because it counts."""

    source: ContextSource
    request: memory_pb2.CompactRequest
    window: ContextWindow
    counter: TokenCounter
    pins: str

    def is_overtaken(self, runs: Mapping[str, Sequence[Line]]) -> bool:
        """Return whether `runs`, the chat's current lines, have another compaction than the draft began with."""
        current = select_source(runs, self.source.run_id, self.source.context_id)
        return current.compacted != self.source.compacted

    @cached_property
    def groups(self) -> list[MessageGroup]:
        """All messages since the last compaction, even outside the window."""
        everything = build_view(self.source, UNBOUNDED)
        return [*everything.earlier, *everything.own]

    @cached_property
    def former(self) -> MessageGroup | None:
        return None if self.source.compacted is None else self.source.compacted.group

    @cached_property
    def tokens_max(self) -> int:
        return get_request_tokens_max(self.request.limits)

    @cached_property
    def tokens(self) -> int:
        return self.counter.to_model_tokens(self._frame + self._former_cost + self.counter.count_groups(self.groups))

    def find_refusal(self) -> str:
        """Return why no summary is requested; empty if one is."""
        if self.request.trigger == "auto" and is_broken(self.source):
            return "TOO_MANY_FAILURES"
        plan = self._make_plan(RETAINED_RATIO, self.counter.from_model_tokens(self.tokens_max))
        gain = self.counter.to_model_tokens(self.counter.count_groups(plan.replaced))
        return "" if gain >= max(1, GAIN_RATIO * self.tokens) else "NOTHING_TO_COMPACT"

    def build_chat_request(self, counter: TokenCounter) -> llm_pb2.ChatRequest:
        """Build the request for a summary, within the summariser's window as `counter` counts.

        System, tools and messages equal the context's own requests, so that a prefix cache hits.
        """
        given = self.request
        model = given.summary_model if given.HasField("summary_model") else given.limits
        room = counter.from_model_tokens(get_request_tokens_max(model)) - counter.count_frame(given.system, given.tools)
        files = context_files.select_fitting(context_files.limit_files(given.files), room // 2, counter.count_text)
        last = make_text_message("user", build_instruction(files, given.hint))
        told = [*([] if self.former is None else [self.former]), *self.groups]
        told = truncate_groups(told, counter, room - counter.count_message(last), summary=self.former is not None)
        request = llm_pb2.ChatRequest(
            provider_key=model.provider_key,
            model=model.model,
            messages=[*build_messages(given.system, told, ""), last],
            tools=given.tools,
            temperature=TEMPERATURE,
            stage="compact",
        )
        if given.tools:
            request.tool_choice = "none"
        return request

    def apply_summary(self, text: str) -> tuple[CompactionResult, str]:
        """Return the result with a model's summary; if that is no shorter than the replaced messages, the fallback and
        the reason."""
        room = int(context_files.KEPT_RATIO * self.counter.from_model_tokens(self.tokens_max))
        files = context_files.select_fitting(
            context_files.limit_files(self.request.files), room, self.counter.count_text
        )
        result = self._make_result(RETAINED_RATIO, text, files)
        replaced = self._former_cost + self.counter.count_groups(result.plan.replaced)
        if self.counter.count_text(text) < replaced:
            return result, ""
        return self.fall_back(), "SUMMARY_TOO_LONG"

    def fall_back(self) -> CompactionResult:
        """Return the result with the former summary, and a note of what it lacks."""
        plan = self._make_plan(FALLBACK_RATIO, self.counter.from_model_tokens(self.tokens_max))
        count = sum(len(group.list_messages()) for group in plan.replaced)
        note = f"[{count:,} older messages were left out without a summary.]"
        former = "" if self.source.compacted is None else extract_summary(self.source.compacted.summary.content)
        return self._make_result(FALLBACK_RATIO, f"{former}\n{note}".strip(), [])

    def _make_result(self, ratio: float, text: str, files: list[memory_pb2.ContextFile]) -> CompactionResult:
        content = build_content(text, self.pins, files)
        content_tokens = self.counter.count_for_log(make_text_message("user", content))
        cost = self._frame + content_tokens.count
        # What is left must not be due again at once.
        plan = self._make_plan(ratio, int(DUE_RATIO * self.counter.from_model_tokens(self.tokens_max)) - cost)
        tokens = self.counter.to_model_tokens(cost + self.counter.count_groups(plan.kept))
        return CompactionResult(plan, content, content_tokens, [file.path for file in files], tokens)

    def _make_plan(self, ratio: float, room: int) -> CompactionPlan:
        return make_plan(self.groups, ratio, self.counter, room, first=self._first_shown)

    @cached_property
    def _first_shown(self) -> int:
        shown = build_view(self.source, self.window)
        places = [get_position(group) for group in (*shown.earlier, *shown.own)]
        common = 0
        while common < min(len(places), len(self.groups)) and places[-1 - common] == get_position(
            self.groups[-1 - common]
        ):
            common += 1
        return len(self.groups) - common

    @cached_property
    def _frame(self) -> int:
        return self.counter.count_frame(self.request.system, self.request.tools)

    @cached_property
    def _former_cost(self) -> int:
        return 0 if self.former is None else self.counter.count_group(self.former)
