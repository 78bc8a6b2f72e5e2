"""A scope's conversation with its model: each streamed turn is committed before any tool runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import grpc
import structlog

from headrace.errors import BudgetExceeded, ContextLengthExceeded, ProviderUnavailable, StreamStalled
from headrace.v1 import common_pb2, llm_pb2, tools_pb2
from services.orchestrator import metrics
from services.orchestrator.calls import executor
from services.orchestrator.peers.reconnect import was_broken_connection
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.answers.answer import Answer
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.scope import Scope
from services.orchestrator.turn import parent_context
from services.orchestrator.turn.context import Context
from services.runtime.rpc.call_ids import forward_metadata
from services.runtime.rpc.push_stream import push_messages

OUTPUT_TOKENS = 4096
"""Reserved when the agent sets no max_tokens; few answers are longer."""

log = structlog.get_logger()


@dataclass(slots=True)
class _Turn:
    request: bytes
    """Serialized; replaced when refused as too long."""

    hidden: Collection[str]


class Conversation:
    def __init__(self, scope: Scope, peers: Peers, tools: list[tools_pb2.Tool]) -> None:
        self.scope = scope
        self.run = scope.run
        self.has_tools = bool(tools)
        self.peers = peers
        self.tools = tools
        scope.offer_tools(tools)
        self._schemas = scope.tools.schemas
        self.context = Context(scope, peers, self._schemas)

    async def ask_model(
        self,
        tool_choice: str,
        *,
        parallel: bool = False,
        beyond_budget: bool = False,
        reasoning: bool | None = None,
    ) -> Answer:
        """Stream one turn and commit it.

        `tool_choice` is none, auto, required or a tool's name; `reasoning` None means the stage's own. Tools stay in
        requests that may not call them, for the provider's prefix cache.
        """
        run = self.run
        run.control.check()
        if self.scope is run.main:
            await self.scope.add_steers()
        if recalled := self.scope.recalled_answer():
            self.context.skip_turn()
            run.spending.recall_model_call(recalled.usage or common_pb2.Usage())
            return self.scope.note_answer(recalled)
        run.control.go_live()
        request = self._make_request(await self.context.load_messages(), tool_choice, parallel, reasoning)
        await run.state.wait_for_start()
        answer = await self._stream_within_budget(
            _Turn(request, self._select_hidden(tool_choice)), beyond=beyond_budget
        )
        await self.scope.end_answer()
        return self.scope.note_answer(answer)

    async def _stream_within_budget(self, turn: _Turn, *, beyond: bool) -> Answer:
        """Stream the answer, beginning once more if the gateway goes away."""
        spending = self.run.spending
        tokens = self.context.tokens + (self.scope.settings.model.max_tokens or OUTPUT_TOKENS)
        async with spending.model_call(tokens, beyond=beyond):
            try:
                return await self._stream_answer(turn)
            except ProviderUnavailable as error:
                if not was_broken_connection(error):
                    raise
                broken = error
            metrics.ASKED_AGAIN.inc()
            log.warning("turn asked again", run_id=self.run.id, reason=broken.reason, said=broken.message)
            if not self.scope.has_heard:
                await self.peers.wait_for_gateway()
                return await self._stream_answer(turn)
        async with AsyncExitStack() as stack:
            # What had come was paid for: another answer is another model call, and without one readers keep what they
            # have.
            try:
                await stack.enter_async_context(spending.model_call(tokens))
            except BudgetExceeded:
                raise broken from None
            await self.scope.retract_answer(broken.reason)
            await self.peers.wait_for_gateway()
            return await self._stream_answer(turn)

    async def _stream_answer(self, turn: _Turn) -> Answer:
        answer = self.scope.begin_answer(turn.hidden)
        try:
            await self._stream_fitting(turn, answer)
        finally:
            if answer.usage is not None:
                self.run.spending.settle(answer.usage)
        return answer

    def _select_hidden(self, tool_choice: str) -> list[str]:
        """Return the deltas to hide: reasoning summed up later, an answer verified first."""
        settings = self.scope.settings
        is_draft = settings.verify != "NONE" and tool_choice in ("none", "auto") and not self.scope.attention.draft
        hidden = ["content"] if is_draft else []
        return [*hidden, "reasoning"] if settings.output != "PLAIN" else hidden

    async def execute_calls(self, answer: Answer, *, parallel: bool, warning: str = "") -> None:
        """Give every call a result, committed as it comes, with `warning` appended.

        Raises:
            BudgetExceeded: Calls beyond the budget were refused.
        """
        runnable: list[Call] = []
        open_calls = [call for call in answer.calls if not await executor.recall_result(self.scope, self.peers, call)]
        for call in open_calls:
            if call.tool is None:
                known = ", ".join(self.scope.tools.names) or "none"
                await executor.refuse_call(self.scope, call, f"there is no tool {call.name!r}; tools: {known}")
            elif answer.finish_reason == "length" and not (call.pieces and call.is_whole):
                await executor.refuse_call(
                    self.scope, call, "the answer was cut at the token limit within the arguments"
                )
            elif call.problem:
                await executor.refuse_call(self.scope, call, call.problem)
            elif runnable and not parallel:
                await executor.refuse_call(self.scope, call, "only one tool runs at a time; ask again for this one")
            else:
                runnable.append(call)
        granted = [call for call in runnable if self.run.spending.reserve_tool_calls(1)]
        for call in runnable[len(granted) :]:
            await executor.refuse_call(self.scope, call, executor.OVER_BUDGET)
        await executor.execute_all(self.scope, self.peers, granted, warning)
        await parent_context.restore(self.scope, answer)
        if len(granted) < len(runnable) or executor.was_refused_for_budget(self.scope, answer.calls):
            raise self.run.spending.make_exceeded("maxToolCalls")

    async def refuse_calls(self, answer: Answer, why: str) -> None:
        for call in answer.calls:
            if not await executor.recall_result(self.scope, self.peers, call):
                await executor.refuse_call(self.scope, call, why)

    def _make_request(
        self, messages: Sequence[llm_pb2.Message], tool_choice: str, parallel: bool, reasoning: bool | None
    ) -> bytes:
        """Serialize the request, as a message object would weigh more while the model answers."""
        model = self.scope.settings.model
        self.run.block_names.tool_ids.update(call.id for message in messages for call in message.tool_calls)
        request = llm_pb2.ChatRequest(
            provider_key=model.provider_key or "",
            model=model.model or "",
            messages=messages,
            tools=self._schemas,
            temperature=model.temperature,
            top_p=model.top_p,
            max_tokens=model.max_tokens,
            stage=self.scope.stage.name,
        )
        if self._schemas:
            request.tool_choice = tool_choice
            request.parallel_tool_calls = parallel
        if model.reasoning is not None:
            request.reasoning.enabled = model.reasoning.enabled is not False
            request.reasoning.effort = model.reasoning.effort or ""
        if reasoning is not None:
            request.reasoning.enabled = reasoning
        return request.SerializeToString()

    async def _stream_fitting(self, turn: _Turn, answer: Answer) -> None:
        """Compact and try again, as the same call of the budget, when the turn is too long."""
        try:
            await self._stream(turn.request, answer)
        except ContextLengthExceeded:
            shorter = await self.context.load_shortened() if answer.is_empty else None
            if shorter is None:
                raise
            again = llm_pb2.ChatRequest.FromString(turn.request)
            del again.messages[:]
            again.messages.extend(shorter)
            turn.request = again.SerializeToString()
            await self._stream(turn.request, answer)

    async def _stream(self, request: bytes, answer: Answer) -> None:
        timeout_s = min(self.run.spending.model_timeout_s, self.run.spending.time_left_s)
        try:
            await push_messages(
                self.peers.stream_chat(request, timeout=timeout_s, metadata=forward_metadata()), answer.take
            )
        except ProviderUnavailable as error:
            # The answer is complete, only its end is missing.
            if not (answer.finish_reason and was_broken_connection(error)):
                raise
        except grpc.aio.AioRpcError as error:
            # The gateway's own errors arrive as ours; what is left is our deadline, or a bug of the gateway.
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                raise
            if timeout_s < self.run.spending.model_timeout_s:
                raise self.run.spending.make_exceeded("timeoutMs") from error
            raise StreamStalled(f"the model took longer than {timeout_s:g} s (modelTimeoutMs)") from error
        if not answer.finish_reason:
            raise ProviderUnavailable("the model's stream ended before its answer was complete; try again")
