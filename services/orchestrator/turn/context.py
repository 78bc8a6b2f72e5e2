"""Loads the messages of a scope's requests, with reminders, insights, and its sub-agents' results.

A turn compacts at most once when due, and once if the provider refused it as too long. A run's first turn does not wait
for a summary while its request fits: the chat is compacted after the run, or before a later turn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from headrace.v1 import llm_pb2, memory_pb2
from services.orchestrator.agents import prompts
from services.orchestrator.agents.definition import Definition
from services.orchestrator.peers.models import get_model_info, make_limits
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run import session_state
from services.orchestrator.run.answers.answer import Answer
from services.orchestrator.run.scope import Scope
from services.orchestrator.run.scope_parts import MENTIONS, insight_line, preview, text_of
from services.orchestrator.turn import model_stream
from services.orchestrator.turn.compacting.compaction import Compaction, RequestFrame, make_window_settings
from services.runtime.clock import now_utc

if TYPE_CHECKING:
    from services.orchestrator.turn.conversation import Conversation


THOUGHT_CHARS = 200

RETURN_CHARS_MAX = 500
"""Maximum characters; the model has the whole text as the call's own result."""


class ParentContext(msgspec.Struct, rename="camel"):
    parent_id: str
    checkpoint: int
    sub_goal: str
    latest_thought: str
    depth: int


async def push(scope: Scope, parent: Scope, peers: Peers, task: str) -> None:
    if not parent.agent.memory.recap.enabled or not scope.restored.is_used_up:
        return
    kept = ParentContext(
        parent_id=parent.subagent_id or "main",
        checkpoint=parent.run.chat.checkpoint_id or 0,
        sub_goal=task[:THOUGHT_CHARS],
        latest_thought=parent.notes.last_text[:THOUGHT_CHARS],
        depth=parent.depth,
    )
    await session_state.change(scope, peers, parent_context=msgspec.json.encode(kept))


async def restore(scope: Scope, answer: Answer) -> None:
    """Show the results of sub-agents; the results of all calls of `answer` are stored first."""
    returns = scope.notes.take_returns()
    if not returns:
        return
    parts = [
        prompts.fill_placeholders(
            prompts.load_text("subagent_return"), {"task": back.task, "result": back.result[:RETURN_CHARS_MAX]}
        )
        for back in (returns[call.tool_id] for call in answer.calls if call.tool_id in returns)
    ]
    where = {"depth": str(scope.depth), "thought": scope.notes.last_text[:THOUGHT_CHARS] or "(none)"}
    parts.append(prompts.fill_placeholders(prompts.load_text("subagent_restored"), where))
    await scope.add_user_message("\n\n".join(parts))


COMPACT_COMMAND = "/compact"

COMPACT_STAGE = "compact"

ENDED = ("compaction_complete", "compaction_fallback", "compaction_fail")


def is_compact_command(message: str) -> bool:
    """Return whether the message is the compact command, which memory shows to no model."""
    return message.split(maxsplit=1)[:1] == [COMPACT_COMMAND]


async def run_compaction(conversation: Conversation) -> str:
    if any(event.WhichOneof("payload") in ENDED for event in conversation.run.restored.events):
        return "stop"  # an earlier owner has done it
    _, _, hint = conversation.run.query.message.strip().partition(COMPACT_COMMAND)
    await conversation.context.compact(hint.strip())
    return "stop"


OF_RUN = ("time", *MENTIONS)
"""Keys of reminders that belong to a query and are sent once in its run."""


def make_reminders(scope: Scope) -> list[memory_pb2.Reminder]:
    attention = scope.attention.without_todos() if scope.depth else scope.attention
    time = memory_pb2.Reminder(key="time", text=f"Current time: {now_utc():%Y-%m-%d %H:%M} UTC")
    reminders = [time, *attention.describe()]
    if scope.agent.limits.tell_model:
        reminders.append(memory_pb2.Reminder(key="budget", text=_describe_budget(scope)))
    return reminders


def make_asides(scope: Scope) -> list[str]:
    """Create the unlogged texts of a request: notes, the plan of a similar task, and the draft to verify."""
    draft = scope.attention.draft
    check = prompts.fill_placeholders(prompts.load_text("verify"), {"draft": draft}) if draft else ""
    return [text for text in (scope.attention.describe_notes(), scope.attention.past_plan, check) if text]


def _describe_budget(scope: Scope) -> str:
    left = scope.run.spending.measure_left()
    parts = [
        f"{left.model_calls} model calls, this one included",
        f"{left.tool_calls} tool calls",
        f"{left.time_ms // 1000} s",
    ]
    if left.HasField("tokens"):
        parts.append(f"{left.tokens} tokens")
    if left.HasField("cost_usd"):
        parts.append(f"{left.cost_usd:.4f} US dollars")
    return f"Left of the budget: {', '.join(parts)}."


INSIGHT_CHARS_MAX = 300

RESULT_CHARS_MAX = 8000

INSIGHT_STAGE = "insight"

INSIGHT_SYSTEM = """\
You keep notes for an agent that will not see these results again. For each numbered result write one line, \
"<number>. <what it says that matters for the task, with names and figures>". Write nothing else."""

_LINE = re.compile(r"^[ \t#*_>-]*([0-9]{1,4})[ \t*_]*[.):、．：][ \t*_]*(\S.*)$", re.MULTILINE)


async def write_insights(scope: Scope, peers: Peers, results: Sequence[llm_pb2.Message]) -> None:
    """Have a model write the insights that will replace results in the next request."""
    text = "\n\n".join(
        f"{number}. {result.name}:\n{text_of(result)[:RESULT_CHARS_MAX]}"
        for number, result in enumerate(results, start=1)
    )
    answer = await model_stream.ask_model(scope.run, peers, INSIGHT_STAGE, INSIGHT_SYSTEM, text)
    found = {int(number): text.strip()[:INSIGHT_CHARS_MAX] for number, text in _LINE.findall(answer)}
    lines = [
        insight_line(scope.context_id, result, found.get(number) or preview(result))
        for number, result in enumerate(results, start=1)
    ]
    await scope.run.log.append(lines)


NEARLY_FULL_SHARE = 0.9
"""Share of the compaction threshold at which the user is warned."""


class Context:
    def __init__(
        self,
        scope: Scope,
        peers: Peers,
        tools: Sequence[llm_pb2.ToolSchema],
        history_tools: Sequence[llm_pb2.ToolSchema],
    ) -> None:
        """`history_tools` are counted with the others once messages have left the window."""
        self._scope = scope
        self._peers = peers
        self._tools = tools
        self._history_tools = history_tools
        self.has_left = False
        """Whether the last request omits earlier messages."""
        self._recap = make_recap_settings(scope.agent, scope.settings.steps_max)
        self._frame: RequestFrame | None = None
        self._framed_for = scope.settings
        self._compaction = Compaction(scope, peers)
        self.model = llm_pb2.ModelInfo()
        """The model of the last request."""
        self.tokens = 0
        """Tokens of the last request; 0 if memory could not count them."""
        self._turn = 0
        self._has_noticed = False
        self._has_warned = False

    async def load_messages(self) -> Sequence[llm_pb2.Message]:
        """Load the next turn's messages, compacted when due."""
        self._turn += 1
        loaded = await self._load()
        if loaded.without_insight and self._scope.agent.memory.recap.insights == "llm":
            await write_insights(self._scope, self._peers, loaded.without_insight)
            loaded = await self._load()
        is_due = loaded.compaction_due and (loaded.is_over or self._turn > 1)
        if is_due and self._compaction.is_worth_trying(loaded.tokens):
            # The turn itself needs a call too.
            loaded = await self._compact_and_load(loaded, calls_kept=1) or loaded
        if loaded.notice and not self._has_noticed:
            self._has_noticed = True
            await self._scope.notice("CONTEXT_SHORTENED", loaded.notice)
        if self._scope is self._scope.run.main:
            self._scope.notes.compact_after_run = self._compact_after_run if _is_wanted(loaded) else None
            await self._warn_if_nearly_full(loaded)
        return loaded.messages

    async def _warn_if_nearly_full(self, loaded: memory_pb2.LoadContextResponse) -> None:
        threshold = self._scope.agent.memory.threshold
        if self._has_warned or loaded.notice or loaded.fill_ratio < NEARLY_FULL_SHARE * threshold:
            return
        self._has_warned = True
        parts = [f"the chat is {min(100, round(100 * loaded.fill_ratio))} % full"]
        if loaded.compaction_due:
            parts.append("its older messages are summarised after this answer")
        elif loaded.fill_ratio < threshold:
            parts.append(f"from {round(100 * threshold)} % on its older messages are summarised")
        await self._scope.notice("CHAT_NEARLY_FULL", f"{'; '.join(parts)} (/compact does it at once)")

    def skip_turn(self) -> None:
        self._turn += 1

    async def load_shortened(self) -> Sequence[llm_pb2.Message] | None:
        loaded = await self._compact_and_load(await self._load(), calls_kept=0)
        return None if loaded is None else loaded.messages

    async def compact(self, hint: str) -> None:
        loaded = await self._load(counted=False)
        await self._compaction.compact_by_hand(await self._make_frame(), loaded, hint)

    def add_history_tools(self) -> None:
        """Include the history tools from the next request on."""
        self._tools, self._history_tools, self._frame = [*self._tools, *self._history_tools], (), None

    async def _compact_after_run(self) -> bool:
        # An earlier run's compaction may have ended since this run's last turn.
        loaded = await self._load()
        return not _is_wanted(loaded) or await self._compaction.compact_after_run(await self._make_frame(), loaded)

    async def _compact_and_load(
        self, loaded: memory_pb2.LoadContextResponse, *, calls_kept: int
    ) -> memory_pb2.LoadContextResponse | None:
        turn = self._turn if self._turn > 1 else None
        if await self._compaction.compact_before_turn(await self._make_frame(), loaded, turn, calls_kept=calls_kept):
            return await self._load()
        return None

    async def _load(self, *, counted: bool = True) -> memory_pb2.LoadContextResponse:
        scope, run = self._scope, self._scope.run
        await run.log.commit_held()
        frame = await self._make_frame()
        limits = frame.limits if counted else None
        request = make_load_request(scope, limits, self._tools, self._history_tools, self._recap)
        loaded = None
        if run.first_turn is not None and scope is run.main and counted:
            loaded = await run.first_turn.load_context(request)
        loaded = loaded or await self._ask(request)
        self.tokens, self.has_left = loaded.tokens, loaded.has_left
        # A part of the response would keep all of it in memory, with the chat's messages.
        scope.reminded = memory_pb2.LoadContextResponse(reminded=loaded.reminded).reminded
        return loaded

    async def _ask(self, request: memory_pb2.LoadContextRequest) -> memory_pb2.LoadContextResponse:
        if (query := self._scope.run.pending_query) is not None:
            request.pending_query.CopyFrom(query)
        return await self._peers.memory.LoadContext(request)

    async def _make_frame(self) -> RequestFrame:
        settings = self._scope.settings
        if self._frame is None or self._framed_for is not settings:
            model = settings.model
            info = await get_model_info(self._peers, model.provider_key or "", model.model or "")
            self._framed_for, self.model = settings, info
            self._frame = RequestFrame(self._tools, info, make_limits(info, model.max_tokens or 0))
        return self._frame


def make_recap_settings(agent: Definition, steps_max: int) -> memory_pb2.RecapSettings | None:
    recap = agent.memory.recap
    if not recap.enabled:
        return None
    return memory_pb2.RecapSettings(
        active_prompt_tokens_max=recap.active_prompt_max_tokens,
        insights_window_size=recap.insights_window_size,
        steps_max=steps_max,
    )


def make_load_request(
    scope: Scope,
    limits: memory_pb2.ModelLimits | None,
    tools: Sequence[llm_pb2.ToolSchema],
    history_tools: Sequence[llm_pb2.ToolSchema],
    recap_settings: memory_pb2.RecapSettings | None,
) -> memory_pb2.LoadContextRequest:
    """Create the request for the messages that a scope's model sees next; without `limits` nothing is counted."""
    return memory_pb2.LoadContextRequest(
        chat_id=scope.run.chat_id,
        run_id=scope.run.id,
        context_id=scope.context_id,
        system=scope.system,
        window=make_window_settings(scope.agent.memory),
        limits=limits,
        tools=tools,
        history_tools=history_tools,
        recap=recap_settings,
        reminders=make_asides(scope),
        current=make_reminders(scope),
        current_of_run=OF_RUN,
    )


def _is_wanted(loaded: memory_pb2.LoadContextResponse) -> bool:
    return loaded.compaction_due or loaded.is_past_cap
