"""A compaction as it is worked out: the request for a summary, and what would stand in the log. Nothing here waits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from headrace.v1 import llm_pb2, memory_pb2
from services.memory.compaction import context_files as context_files
from services.memory.compaction.plan import DUE_RATIO, FALLBACK_RATIO, GAIN_RATIO, RETAINED_RATIO, Plan, planned
from services.memory.compaction.prompt import content_of, instruction, summary_of
from services.memory.context.context_source import place
from services.memory.context.context_view import UNBOUNDED, Window, request_messages, view
from services.memory.context.message_pairing import Unit, text_message
from services.memory.context.token_limits import request_tokens_max
from services.memory.context.truncation import fitted

if TYPE_CHECKING:
    from services.memory.context.context_source import Story
    from services.memory.context.token_counter import Counter
    from services.memory.log.lines import Tokens

TEMPERATURE = 0.2
"""A summary is to be true, not varied."""


@dataclass(frozen=True, slots=True)
class Result:
    """What would stand in the log."""

    plan: Plan
    content: str
    content_tokens: Tokens
    files: list[str]
    """Paths of the files in it."""
    tokens: int
    """Of the context from then on."""


@dataclass(frozen=True)
class Draft:
    """One compaction. Counts, so it belongs into a thread; used by one at a time."""

    story: Story
    request: memory_pb2.CompactRequest
    window: Window
    counter: Counter
    pins: str

    @cached_property
    def units(self) -> list[Unit]:
        """All that was said since the last compaction, whatever the window shows of it."""
        everything = view(self.story, UNBOUNDED)
        return [*everything.earlier, *everything.own]

    @cached_property
    def former(self) -> Unit | None:
        """The summary that is in force."""
        return None if self.story.compacted is None else self.story.compacted.unit

    @cached_property
    def tokens_max(self) -> int:
        return request_tokens_max(self.request.limits)

    @cached_property
    def tokens(self) -> int:
        """Of the context as it is."""
        return self.counter.scaled(self._frame + self._former_cost + self.counter.units(self.units))

    def is_worth_it(self) -> bool:
        """Whether there is enough to be replaced."""
        plan = self._plan(RETAINED_RATIO, self.counter.unscaled(self.tokens_max))
        return self.counter.scaled(self.counter.units(plan.replaced)) >= max(1, GAIN_RATIO * self.tokens)

    def chat_request(self, counter: Counter) -> llm_pb2.ChatRequest:
        """The request for a summary, in the summariser's window; `counter` counts for it.

        Its system, tools and messages are those of the context's own requests, so that a prefix cache hits.
        """
        given = self.request
        model = given.summary_model if given.HasField("summary_model") else given.limits
        room = counter.unscaled(request_tokens_max(model)) - counter.frame(given.system, given.tools)
        files = context_files.fitting(context_files.bounded(given.files), room // 2, counter.text)
        last = text_message("user", instruction(files, given.hint))
        told = [*([] if self.former is None else [self.former]), *self.units]
        told = fitted(told, counter, room - counter.message(last), summary=self.former is not None)
        request = llm_pb2.ChatRequest(
            provider_key=model.provider_key,
            model=model.model,
            messages=[*request_messages(given.system, told, ""), last],
            tools=given.tools,
            temperature=TEMPERATURE,
            stage="compact",
        )
        if given.tools:
            request.tool_choice = "none"
        return request

    def summarised(self, text: str) -> Result | None:
        """With a model's summary; None: it is no shorter than what it replaces."""
        room = int(context_files.KEPT_RATIO * self.counter.unscaled(self.tokens_max))
        files = context_files.fitting(context_files.bounded(self.request.files), room, self.counter.text)
        result = self._result(RETAINED_RATIO, text, files)
        replaced = self._former_cost + self.counter.units(result.plan.replaced)
        return result if self.counter.text(text) < replaced else None

    def fallen_back(self) -> Result:
        """Without one: the former summary, and a note of what it does not tell."""
        plan = self._plan(FALLBACK_RATIO, self.counter.unscaled(self.tokens_max))
        count = sum(len(unit.all()) for unit in plan.replaced)
        note = f"[{count:,} older messages were left out without a summary.]"
        former = "" if self.story.compacted is None else summary_of(self.story.compacted.summary.content)
        return self._result(FALLBACK_RATIO, f"{former}\n{note}".strip(), [])

    def _result(self, ratio: float, text: str, files: list[memory_pb2.ContextFile]) -> Result:
        content = content_of(text, self.pins, files)
        content_tokens = self.counter.stored(text_message("user", content))
        cost = self._frame + content_tokens.count
        # What is left must not be due again at once.
        plan = self._plan(ratio, int(DUE_RATIO * self.counter.unscaled(self.tokens_max)) - cost)
        tokens = self.counter.scaled(cost + self.counter.units(plan.kept))
        return Result(plan, content, content_tokens, [file.path for file in files], tokens)

    def _plan(self, ratio: float, room: int) -> Plan:
        return planned(self.units, ratio, self.counter, room, first=self._first_shown)

    @cached_property
    def _first_shown(self) -> int:
        """The first unit from which on the window shows all."""
        shown = view(self.story, self.window)
        places = [place(unit) for unit in (*shown.earlier, *shown.own)]
        common = 0
        while common < min(len(places), len(self.units)) and places[-1 - common] == place(self.units[-1 - common]):
            common += 1
        return len(self.units) - common

    @cached_property
    def _frame(self) -> int:
        return self.counter.frame(self.request.system, self.request.tools)

    @cached_property
    def _former_cost(self) -> int:
        return 0 if self.former is None else self.counter.unit(self.former)
