"""The plan and the lines of a compaction, computed without waiting."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from headrace.v1 import memory_pb2
from services.memory.compaction.plan import (
    FALLBACK_RATIO,
    GAIN_RATIO,
    CompactionPlan,
    is_broken,
    make_plan,
)
from services.memory.compaction.prompt import (
    EDITED,
    FILES_RATIO,
    build_content,
    fit_files,
    format_lines,
    split_content,
)
from services.memory.compaction.receipt import (
    Unseen,
    count_messages,
    find_former_lines,
    find_last_line,
    join_lines,
    measure_unseen,
)
from services.memory.context.pairing import MessageGroup, make_text_message
from services.memory.context.scopes import SummaryChanges, format_pins
from services.memory.context.source import get_position, keep_since
from services.memory.context.token_counter import get_request_tokens_max
from services.memory.context.view import UNBOUNDED, ContextWindow, build_view
from services.memory.log.lines import CompactReceipt
from services.memory.log.raw_json import ABSENT, dump_proto

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from services.memory.compaction.pinned import PinnedFacts
    from services.memory.compaction.receipt import WrittenSummary
    from services.memory.compaction.transcript import Entry
    from services.memory.context.scopes import AppliedCompaction
    from services.memory.context.source import ContextSource
    from services.memory.context.token_counter import TokenCounter
    from services.memory.log.chat_info import CompactionBase
    from services.memory.log.lines import Pin
    from services.memory.log.messages import Tokens

SUMMARY_RATIO = 0.1
"""Expected maximum share of the limit for a summary, used to plan which messages to keep."""

REQUEST_RATIO = 0.05
"""Maximum share of the limit for the first and the last request, each included in full after a summary."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    plan: CompactionPlan
    content: str
    content_tokens: Tokens
    files: list[str]
    tokens: int
    """Tokens of the compacted context."""
    receipt: CompactReceipt


@dataclass(frozen=True)
class CompactionDraft:
    """A compaction in progress, used by one task at a time, in threads because it counts tokens."""

    source: ContextSource
    request: memory_pb2.CompactRequest
    window: ContextWindow
    counter: TokenCounter
    facts: PinnedFacts
    """Facts added to every summary, independent of the model's text."""
    base: CompactionBase
    """The state that must be unchanged at commit: the context's last boundary or a later revert, and all redactions."""
    pins: Sequence[Pin] = ()
    """All messages that the user has pinned, including those kept after the summary."""
    is_between_runs: bool = False
    edited: str = ""
    """Text that the user gave to the former summary while this one was being written; empty if none."""

    def update(self, former: AppliedCompaction | None, pins: Sequence[Pin]) -> CompactionDraft:
        """Return the draft with people's edits of `former`, its former summary, up to now."""
        before = self.source.compacted
        is_edited = former is not None and before is not None and former.text != before.text
        return replace(self, pins=pins, edited=split_content(former.text)[1] if former and is_edited else "")

    @cached_property
    def groups(self) -> list[MessageGroup]:
        """All messages since the last compaction, even those outside the window."""
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

    @cached_property
    def plan(self) -> CompactionPlan:
        """Return the plan of messages that a summary of the expected size replaces."""
        limit = self.counter.from_model_tokens(self.tokens_max)
        room = (
            int(max(0.0, self.window.due_ratio - SUMMARY_RATIO) * limit)
            - self._frame
            - self.counter.count_text(self._facts)
            - self.counter.count_text(format_pins(self.pins))
        )
        return self._make_plan(self.window.kept_ratio, room)

    def find_refusal(self) -> str:
        """Return why no summary is requested; empty if one is."""
        if self.request.trigger == "auto" and is_broken(self.source):
            return "TOO_MANY_FAILURES"
        plan = self._make_plan(self.window.kept_ratio, self.counter.from_model_tokens(self.tokens_max))
        gain = self.counter.to_model_tokens(self.counter.count_groups(plan.replaced))
        return "" if gain >= max(1, GAIN_RATIO * self.tokens) else "NOTHING_TO_COMPACT"

    def apply_summary(self, written: WrittenSummary, entries: Sequence[Entry]) -> tuple[CompactionResult, str]:
        """Return the result with a model's summary; if it is not shorter than the replaced messages, the fallback and
        the reason.

        `entries` are those that the summary was written from, if in chunks.
        """
        room = int(FILES_RATIO * self.counter.from_model_tokens(self.tokens_max))
        # Files that outweigh what is gained would make the compaction void.
        room = min(room, self.counter.count_groups(self.plan.replaced) // 2)
        files = fit_files(self.request.files, room, self.counter.count_text)
        parts = zip(entries, written.seen, strict=True) if written.seen else ()
        unseen = Unseen(written.groups_seen, *measure_unseen(parts))
        text = f"{written.text}\n\n{EDITED}\n\n{self.edited}" if self.edited else written.text
        result = self._make_result(self.window.kept_ratio, written, lambda _: text, files, unseen)
        replaced = self._former_cost + self.counter.count_groups(result.plan.replaced)
        if self.counter.count_text(written.text) < replaced:
            return result, ""
        return self.fall_back(written), "SUMMARY_TOO_LONG"

    def fall_back(self, written: WrittenSummary) -> CompactionResult:
        """Return the result with the former summary, and a note of the messages it lacks."""
        former = self.edited or ("" if self.source.compacted is None else split_content(self.source.compacted.text)[1])

        def write(plan: CompactionPlan) -> str:
            count = count_messages(plan.replaced)
            lines = format_lines([(get_position(self.groups[0]).n, find_last_line(self.groups[: plan.start]))])
            note = f"[{count:,} older messages were left out without a summary: lines {lines}.]"
            return f"{former}\n{note}".strip()

        return self._make_result(FALLBACK_RATIO, written, write, [], Unseen(0))

    def _make_result(
        self,
        ratio: float,
        written: WrittenSummary,
        write: Callable[[CompactionPlan], str],
        files: Sequence[memory_pb2.ContextFile],
        unseen: Unseen,
    ) -> CompactionResult:
        # The remaining messages must not be due again immediately. The head's figures depend on them and are known only
        # then.
        room = self.counter.from_model_tokens(self.tokens_max)
        text = write(self._make_plan(ratio, room))
        expected = build_content(text, (1, len(self.groups)), unseen.lines, self._facts, files)
        cost = self._frame + self._count_shown(expected, self.pins)
        plan = self._make_plan(ratio, int(self.window.due_ratio * room) - cost)
        receipt = self._make_receipt(plan, written, unseen)
        covered = (receipt.first_line, receipt.last_line)
        content = build_content(write(plan), covered, receipt.unseen if unseen.groups_seen else (), self._facts, files)
        content_tokens = self.counter.count_for_log(make_text_message("user", content))
        shown = self._count_shown(content, self._list_replaced_pins(plan))
        tokens = self._frame + shown + self._count_kept(plan)
        return CompactionResult(
            plan,
            content,
            content_tokens,
            [file.path for file in files if file.text or not file.lines_omitted],
            self.counter.to_model_tokens(tokens),
            receipt,
        )

    def _make_receipt(self, plan: CompactionPlan, written: WrittenSummary, unseen: Unseen) -> CompactReceipt:
        former, never = self.source.compacted, self.groups[unseen.groups_seen : plan.start]
        hidden = [group.hidden for group in plan.replaced if group.hidden is not None]
        lines = [*unseen.lines, *hidden, *([(get_position(never[0]).n, find_last_line(never))] if never else [])]
        covered = self.counter.count_groups(plan.replaced) + (self._former_cost if unseen.groups_seen else 0)
        seen = covered - unseen.tokens - self.counter.count_groups(never) if unseen.groups_seen else 0
        return CompactReceipt(
            first_line=find_former_lines(former)[0] if former else get_position(self.groups[0]).n,
            last_line=find_last_line(self.groups[: plan.start] or self.groups[:1]),
            covered_tokens=self.counter.to_model_tokens(covered),
            seen_tokens=self.counter.to_model_tokens(max(0, seen)),
            unseen=join_lines(former, lines),
            model_calls=written.calls,
            cached_ratio=written.cached_ratio,
            usage=ABSENT if written.usage is None else dump_proto(written.usage),
            replaced_messages=count_messages(plan.replaced),
            kept_messages=count_messages(plan.kept),
            pinned=[
                *self.facts.list_items(),
                *(f"Pinned by the user: line {pin.target}" for pin in self._list_replaced_pins(plan)),
            ],
        )

    def _count_kept(self, plan: CompactionPlan) -> int:
        """Count the kept groups as the next request shows them; between runs, it shows the last run shortened."""
        if not self.is_between_runs:
            return self.counter.count_groups(plan.kept)
        source = replace(self.source, before=[*self.source.before, self.source.lines], lines=())
        shown = build_view(source, UNBOUNDED).earlier
        return self.counter.count_groups(keep_since(shown, get_position(self.groups[plan.start])))

    def _list_replaced_pins(self, plan: CompactionPlan) -> list[Pin]:
        """List the pins to append to the summary; pinned messages that are kept stay in their own place."""
        return [pin for pin in self.pins if pin.target < get_position(self.groups[plan.start]).n]

    def _count_shown(self, content: str, pins: Sequence[Pin]) -> int:
        """Count the summary's message in the form that requests use."""
        return self.counter.count_message(make_text_message("user", SummaryChanges(pins=tuple(pins)).apply_to(content)))

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
    def _facts(self) -> str:
        room = int(REQUEST_RATIO * self.counter.from_model_tokens(self.tokens_max))
        return self.facts.format(room, self.counter.count_text)

    @cached_property
    def _frame(self) -> int:
        return self.counter.count_frame(self.request.system, self.request.tools)

    @cached_property
    def _former_cost(self) -> int:
        return 0 if self.former is None else self.counter.count_group(self.former)
