"""Loads the messages of a scope's requests.

A turn compacts at most once when due, and once when the provider refused it as too long.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.v1 import llm_pb2, memory_pb2
from services.orchestrator.agents import recap
from services.orchestrator.peers.model_info import agent_limits
from services.orchestrator.peers.stubs import UNARY_TIMEOUT_S, Peers, translating_peer_errors
from services.orchestrator.run.scope import Scope
from services.orchestrator.turn import insight_writer
from services.orchestrator.turn.compaction import Compaction, RequestFrame
from services.orchestrator.turn.reminders import make_reminders
from services.runtime.rpc.call_ids import forward_metadata


class Context:
    def __init__(self, scope: Scope, peers: Peers, tools: Sequence[llm_pb2.ToolSchema]) -> None:
        self._scope = scope
        self._peers = peers
        self._tools = tools
        self._recap = recap.make_recap_settings(scope.agent)
        self._frame: RequestFrame | None = None
        self._framed_for = scope.settings
        self._compaction = Compaction(scope, peers)
        self.tokens = 0
        """Tokens of the last request; 0 where memory could not count them."""
        self._turn = 0

    async def load_messages(self) -> Sequence[llm_pb2.Message]:
        """Load the next turn's messages, compacted when due."""
        self._turn += 1
        await insight_writer.write_insights(self._scope, self._peers)
        loaded = await self._load()
        if loaded.compaction_due and self._compaction.is_worth_trying(loaded.tokens):
            # The turn itself needs a call too.
            loaded = await self._compact_and_load(loaded, calls_kept=1) or loaded
        return loaded.messages

    def skip_turn(self) -> None:
        self._turn += 1

    async def load_shortened(self) -> Sequence[llm_pb2.Message] | None:
        loaded = await self._compact_and_load(await self._load(), calls_kept=0)
        return None if loaded is None else loaded.messages

    async def compact(self, hint: str) -> None:
        loaded = await self._load(counted=False)
        await self._compaction.compact_by_hand(await self._make_frame(), loaded, hint)

    async def _compact_and_load(
        self, loaded: memory_pb2.LoadContextResponse, *, calls_kept: int
    ) -> memory_pb2.LoadContextResponse | None:
        turn = self._turn if self._turn > 1 else None
        if await self._compaction.compact_before_turn(await self._make_frame(), loaded, turn, calls_kept=calls_kept):
            return await self._load()
        return None

    async def _load(self, *, counted: bool = True) -> memory_pb2.LoadContextResponse:
        scope, run = self._scope, self._scope.run
        frame = await self._make_frame()
        request = memory_pb2.LoadContextRequest(
            chat_id=run.chat_id,
            run_id=run.id,
            context_id=scope.context_id,
            system=scope.system,
            message_history_max=scope.agent.memory.max_message_history,
            limits=frame.limits if counted else None,
            tools=self._tools,
            recap=self._recap,
            reminders=make_reminders(scope),
            pending_query=run.pending_query,
        )
        with translating_peer_errors():
            loaded = await self._peers.memory.LoadContext(request, timeout=UNARY_TIMEOUT_S, metadata=forward_metadata())
        self.tokens = loaded.tokens
        return loaded

    async def _make_frame(self) -> RequestFrame:
        settings = self._scope.settings
        if self._frame is None or self._framed_for is not settings:
            limits, summary_model = await agent_limits(self._peers, settings.model)
            self._framed_for = settings
            self._frame = RequestFrame(self._tools, limits, summary_model)
        return self._frame
