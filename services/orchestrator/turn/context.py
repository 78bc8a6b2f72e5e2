"""Loads the messages of a scope's requests.

A turn compacts at most once when due, and once when the provider refused it as too long. A run's first turn waits for
no summary while its request fits: the chat is compacted once the run has ended, or before a later turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.v1 import llm_pb2, memory_pb2
from services.orchestrator.agents import recap
from services.orchestrator.peers.models import get_model_info, make_limits
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.scope import Scope
from services.orchestrator.turn import insight_writer
from services.orchestrator.turn.compacting.compaction import Compaction, RequestFrame, make_window_settings
from services.orchestrator.turn.reminders import OF_RUN, make_asides, make_reminders


class Context:
    def __init__(
        self,
        scope: Scope,
        peers: Peers,
        tools: Sequence[llm_pb2.ToolSchema],
        history_tools: Sequence[llm_pb2.ToolSchema],
    ) -> None:
        """`history_tools` are counted with the others once something has left the window."""
        self._scope = scope
        self._peers = peers
        self._tools = tools
        self._history_tools = history_tools
        self.has_left = False
        """Whether the last request lacks something that was said."""
        self._recap = recap.make_recap_settings(scope.agent, scope.settings.steps_max)
        self._frame: RequestFrame | None = None
        self._framed_for = scope.settings
        self._compaction = Compaction(scope, peers)
        self.model = llm_pb2.ModelInfo()
        """The model of the last request."""
        self.tokens = 0
        """Tokens of the last request; 0 where memory could not count them."""
        self._turn = 0
        self._has_noticed = False

    async def load_messages(self) -> Sequence[llm_pb2.Message]:
        """Load the next turn's messages, compacted when due."""
        self._turn += 1
        await insight_writer.write_insights(self._scope, self._peers)
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
        return loaded.messages

    def skip_turn(self) -> None:
        self._turn += 1

    async def load_shortened(self) -> Sequence[llm_pb2.Message] | None:
        loaded = await self._compact_and_load(await self._load(), calls_kept=0)
        return None if loaded is None else loaded.messages

    async def compact(self, hint: str) -> None:
        loaded = await self._load(counted=False)
        await self._compaction.compact_by_hand(await self._make_frame(), loaded, hint)

    def add_history_tools(self) -> None:
        """Have the history tools among the others from the next request on."""
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
        scope.reminded = loaded.reminded
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


def make_load_request(
    scope: Scope,
    limits: memory_pb2.ModelLimits | None,
    tools: Sequence[llm_pb2.ToolSchema],
    history_tools: Sequence[llm_pb2.ToolSchema],
    recap_settings: memory_pb2.RecapSettings | None,
) -> memory_pb2.LoadContextRequest:
    """Make the request for what a scope's model is shown next; without `limits` nothing is counted."""
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
