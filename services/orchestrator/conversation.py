"""A scope's conversation with its model: context in, one streamed turn out, committed before any tool runs."""

from __future__ import annotations

import grpc

from headrace.errors import ProviderUnavailable, StreamStalled
from headrace.streams import reading
from headrace.v1 import llm_pb2, memory_pb2, tools_pb2
from services.orchestrator import tool_calls
from services.orchestrator.answer import Answer, Call
from services.orchestrator.peers import UNARY_TIMEOUT_S, Peers, peer_errors
from services.orchestrator.scope import Scope
from services.runtime.ids import forwarded


class Conversation:
    """What a mode works with: ask the model, run its calls. Used by the scope's task alone."""

    def __init__(self, scope: Scope, peers: Peers, tools: list[tools_pb2.Tool]) -> None:
        self.scope = scope
        self.run = scope.run
        self.has_tools = bool(tools)
        self._peers = peers
        self._schemas = [
            llm_pb2.ToolSchema(name=tool.name, description=tool.description, parameters=tool.parameters)
            for tool in tools
        ]
        self._names = {tool.name for tool in tools}

    async def ask(self, tool_choice: str, *, parallel: bool = False, beyond_budget: bool = False) -> Answer:
        """Stream one model turn: each delta becomes an event at once; the pieces are committed at its end.

        `tool_choice` is none, auto or required. Tools stay in a request that may not call them, so that the
        provider's prefix cache keeps hitting.
        """
        run = self.run
        run.check_stop()
        request = await self._request(tool_choice, parallel)
        run.spending.reserve_model_call(beyond=beyond_budget)
        answer = self.scope.begin_answer()
        try:
            await self._stream(request, answer)
        finally:
            if answer.usage is not None:
                run.spending.settle(answer.usage)
        await self.scope.end_answer()
        return answer

    async def execute(self, answer: Answer, *, parallel: bool, warning: str = "") -> None:
        """Run the calls of an answer and commit each result as it comes; every call is answered.

        `warning` is put at the end of the results, for the model.

        Raises:
            BudgetExceeded: There were more calls than the budget has left; those got executed:false results.
        """
        runnable: list[Call] = []
        for call in answer.calls:
            if call.name not in self._names:
                known = ", ".join(sorted(self._names)) or "none"
                await tool_calls.refuse(self.scope, call, f"there is no tool {call.name!r}; tools: {known}")
            elif answer.finish_reason == "length" and not (call.pieces and call.is_whole):
                await tool_calls.refuse(self.scope, call, "the answer was cut at the token limit within the arguments")
            elif runnable and not parallel:
                await tool_calls.refuse(self.scope, call, "only one tool runs at a time; ask again for this one")
            else:
                runnable.append(call)
        granted = [call for call in runnable if self.run.spending.reserve_tool_calls(1)]
        for call in runnable[len(granted) :]:
            await tool_calls.refuse(self.scope, call, "the budget of tool calls is used up")
        await tool_calls.execute_all(self.scope, self._peers, granted, warning)
        if len(granted) < len(runnable):
            raise self.run.spending.exceeded("maxToolCalls")

    async def refuse(self, answer: Answer, why: str) -> None:
        """Answer every call of `answer` without running any."""
        for call in answer.calls:
            await tool_calls.refuse(self.scope, call, why)

    async def _request(self, tool_choice: str, parallel: bool) -> llm_pb2.ChatRequest:
        model = self.run.agent.model
        with peer_errors():
            context = await self._peers.memory.LoadContext(
                memory_pb2.LoadContextRequest(
                    chat_id=self.run.chat_id,
                    run_id=self.run.id,
                    context_id=self.scope.context_id,
                    system=self.scope.system,
                    message_history_max=self.run.agent.memory.max_message_history,
                ),
                timeout=UNARY_TIMEOUT_S,
                metadata=forwarded(),
            )
        self.run.names.tool_ids.update(call.id for message in context.messages for call in message.tool_calls)
        request = llm_pb2.ChatRequest(
            provider_key=model.provider_key or "",
            model=model.model or "",
            messages=context.messages,
            tools=self._schemas,
            temperature=model.temperature,
            top_p=model.top_p,
            max_tokens=model.max_tokens,
            stage=self.scope.stage,
        )
        if self._schemas:
            request.tool_choice = tool_choice
            request.parallel_tool_calls = parallel
        if model.reasoning is not None:
            request.reasoning.enabled = model.reasoning.enabled is not False
            request.reasoning.effort = model.reasoning.effort or ""
        return request

    async def _stream(self, request: llm_pb2.ChatRequest, answer: Answer) -> None:
        timeout_s = min(self.run.spending.model_timeout_s, self.run.spending.time_left_s)
        take = answer.take
        try:
            async with reading(self._peers.llm.StreamChat(request, timeout=timeout_s, metadata=forwarded())) as deltas:
                async for delta in deltas:
                    take(delta)
        except grpc.aio.AioRpcError as error:
            # The gateway's own errors arrive as ours; what is left is our deadline, or a bug of the gateway.
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                raise
            raise StreamStalled(f"the model took longer than {timeout_s:g} s (modelTimeoutMs)") from error
        if not answer.finish_reason:
            raise ProviderUnavailable("the model's stream ended before its answer was complete; try again")
