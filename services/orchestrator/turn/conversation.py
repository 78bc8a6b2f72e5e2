"""A scope's conversation with its model: each streamed turn is committed before any tool runs."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass

import structlog

from headrace.errors import BudgetExceeded, ContextLengthExceeded, OutputMismatch, ProviderUnavailable
from headrace.v1 import common_pb2, llm_pb2, tools_pb2
from services.orchestrator import metrics
from services.orchestrator.calls import executor
from services.orchestrator.calls.own_tools import recall
from services.orchestrator.money.charges import Origin, Reservation, estimate_untold
from services.orchestrator.peers.models import CallNeeds, estimate_tokens, get_model_info, get_priced_model, make_needs
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.answers.answer import Answer
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.answers.toolbox import Toolbox
from services.orchestrator.run.scope import Scope, check_turn
from services.orchestrator.turn import context, output_form
from services.orchestrator.turn.answer_files import keep_media
from services.orchestrator.turn.context import Context
from services.orchestrator.turn.model_stream import stream_model
from services.orchestrator.turn.output_form import Output, OutputForm
from services.runtime.ending import release_frames
from services.runtime.rpc.peer_calls import was_broken_connection

JSON_SCHEMA = "json_schema"
"""Capability of models that enforce a schema during generation."""

CUT = ("length", "content_filter")
"""Finish reasons of incomplete answers."""

log = structlog.get_logger()


@dataclass(slots=True)
class _Turn:
    request: bytes
    """Serialized; replaced if refused as too long."""

    hidden: Collection[str]
    form: OutputForm | None = None
    """The form required of the answer."""

    counted_bytes: int = 0
    """Size of the part of the request that memory has counted, in bytes."""

    cut: str = ""
    """Notice to readers that the money limit has cut the answer."""

    def limit_output(self, tokens_max: int | None) -> bytes:
        """Return the request, with another max_tokens if given; for a repeated field the last value counts."""
        if tokens_max is None:
            return self.request
        return self.request + llm_pb2.ChatRequest(max_tokens=tokens_max).SerializeToString()


class Conversation:
    def __init__(self, scope: Scope, peers: Peers, tools: list[tools_pb2.Tool]) -> None:
        self.scope = scope
        self.run = scope.run
        self.peers = peers
        self.tools = tools
        self._history_tools = select_history_tools(scope, tools)
        """Tools added once messages have left the window."""
        scope.offer_tools(tools)
        self.context = Context(scope, peers, scope.tools.schemas, Toolbox(self._history_tools).schemas)

    @property
    def has_tools(self) -> bool:
        return bool(self.scope.tools)

    async def ask_model(
        self,
        tool_choice: str,
        *,
        parallel: bool = False,
        beyond_budget: bool = False,
        reasoning: bool | None = None,
    ) -> Answer:
        """Stream one turn and commit it.

        `tool_choice` is none, auto, required or a tool's name; `reasoning` None uses the stage's setting. Requests keep
        their tools even if none may be called, for the provider's prefix cache.
        """
        run = self.run
        run.control.check()
        if self.scope is run.main:
            await self.scope.add_steers()
        if recalled := self.scope.recalled_answer():
            self.context.skip_turn()
            run.spending.recall_model_call(recalled.usage)
            if any(call.name in recall.HISTORY_NAMES for call in recalled.calls):
                self._offer_history_tools()
            return self.scope.note_answer(recalled)
        run.control.go_live()
        check_turn(self.scope)
        form = output_form.find_form(self.scope) if tool_choice in ("none", "auto") else None
        hidden = self._select_hidden(tool_choice)
        is_draft = "content" in hidden
        if form is not None and not is_draft and not await self._is_held_by_provider():
            hidden.append("content")
        request = await self._load_request(tool_choice, parallel, reasoning, form)
        await run.state.wait_for_start()
        counted_bytes = len(request) - (0 if form is None else form.format.ByteSize())
        turn = _Turn(request, hidden, None if is_draft else form, counted_bytes)
        answer = await self._stream_within_budget(turn, beyond=beyond_budget)
        if turn.form is not None:
            answer = await self._hold_to_form(turn, turn.form, answer)
        files = await keep_media(self.scope, self.peers, answer, linked=form is None)
        if self.scope is run.main and not answer.calls and not files.artifacts:
            self.scope.hold_answer()
        else:
            await self.scope.end_answer(files.artifacts)
        for problem in files.problems:
            await self.scope.notice("MEDIA_LEFT_OUT", problem)
        if turn.cut:
            await self.scope.notice("ANSWER_CUT", turn.cut)
        return self.scope.note_answer(answer)

    def _offer_history_tools(self) -> None:
        if self._history_tools:
            self.scope.offer_tools([*self.tools, *self._history_tools])
            self.context.add_history_tools()
            self._history_tools = []

    async def _stream_within_budget(self, turn: _Turn, *, beyond: bool) -> Answer:
        """Stream the answer, again from the beginning if the connection to the gateway breaks."""
        spending = self.run.spending
        needs = await self._measure_needs(turn)
        async with spending.model_call(needs, beyond=beyond) as reservation:
            try:
                return await self._stream_answer(turn, needs, reservation)
            except ProviderUnavailable as error:
                if not was_broken_connection(error):
                    raise
                release_frames(error)
                broken = error
        metrics.ASKED_AGAIN.inc()
        log.warning("turn asked again", run_id=self.run.id, reason=broken.reason, said=broken.message)
        was_heard = self.scope.has_heard
        if not was_heard:
            spending.give_back_model_call()
        async with AsyncExitStack() as stack:
            # The partial answer was paid for, so another attempt counts as a further call; without one, readers keep
            # the part they have.
            try:
                again = spending.model_call(needs, beyond=beyond and not was_heard)
                reservation = await stack.enter_async_context(again)
            except BudgetExceeded:
                raise broken from None
            if was_heard:
                await self.scope.retract_answer(broken.reason)
            await self.peers.wait_for_gateway()
            return await self._stream_answer(turn, needs, reservation)

    async def _measure_needs(self, turn: _Turn) -> CallNeeds:
        model, info = self.scope.settings.model, self.context.model
        if self.run.spending.needs_prices:
            info = await get_priced_model(self.peers, model.provider_key or "", model.model or "")
        # Memory has not counted the form, nor an answer to be repaired.
        uncounted = estimate_tokens(max(0, len(turn.request) - turn.counted_bytes))
        tokens = (self.context.tokens or estimate_tokens(turn.counted_bytes)) + uncounted
        return make_needs(info, tokens, model.max_tokens)

    async def _is_held_by_provider(self) -> bool:
        """Return whether the model enforces a schema itself, so that readers may receive its text immediately."""
        model = self.scope.settings.model
        info = await get_model_info(self.peers, model.provider_key or "", model.model or "")
        return not info.capabilities or JSON_SCHEMA in info.capabilities

    async def _hold_to_form(self, turn: _Turn, form: OutputForm, answer: Answer) -> Answer:
        """Return the answer in its form, requesting it again if necessary; calls and cut answers are unchanged.

        Raises:
            OutputMismatch: The second answer does not match the form either.
        """
        output = self._read_output(form, answer)
        if output is not None and output.problem:
            turn.request = _add_repair(turn.request, answer.end_text(), output.problem)
            needs = await self._measure_needs(turn)
            async with self.run.spending.model_call(needs) as reservation:
                await self.scope.retract_answer(OutputMismatch.reason)
                answer = await self._stream_answer(turn, needs, reservation)
            output = self._read_output(form, answer)
        answer.release_draft(answer.end_text() if output is None else output.require_json())
        return answer

    def _read_output(self, form: OutputForm, answer: Answer) -> Output | None:
        """Return the answer's output; None if no form applies because it has calls, is cut or empty."""
        text = answer.end_text()
        if answer.calls or not text.strip() or answer.finish_reason in CUT:
            return None
        output = form.read_output(text)
        if output.problem:
            log.warning("answer has another form", run_id=self.run.id, problem=output.problem)
        return output

    async def _stream_answer(self, turn: _Turn, needs: CallNeeds, reservation: Reservation) -> Answer:
        answer = self.scope.begin_answer(turn.hidden)
        usage: common_pb2.Usage | None = None
        try:
            await self._stream_fitting(turn, answer, reservation.output_tokens_max)
        except BaseException as error:
            usage = estimate_untold(needs, error, was_asked=answer.was_asked, output_bytes=answer.size_bytes)
            raise
        finally:
            if (usage := answer.usage or usage) is not None:
                origin = Origin(self.scope.agent.key, answer.model or needs.model)
                self.run.spending.settle(usage, origin, reservation)
        if answer.finish_reason == "length" and reservation.is_lowered:
            turn.cut = self.run.spending.describe_cut(needs)
        return answer

    def _select_hidden(self, tool_choice: str) -> list[str]:
        """Return the kinds of deltas to hide: reasoning to be summarized, an answer to be verified."""
        settings = self.scope.settings
        is_draft = settings.verify != "NONE" and tool_choice in ("none", "auto") and not self.scope.attention.draft
        hidden = ["content"] if is_draft else []
        return [*hidden, "reasoning"] if settings.output != "PLAIN" else hidden

    async def execute_calls(self, answer: Answer, *, parallel: bool, warn: executor.Warn | None = None) -> None:
        """Produce a result for every call, committed as it arrives, with the note from `warn` appended.

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
        await executor.execute_all(self.scope, self.peers, granted, warn)
        await context.restore(self.scope, answer)
        if len(granted) < len(runnable) or executor.was_refused_for_budget(self.scope, answer.calls):
            raise self.run.spending.make_exceeded("maxToolCalls")

    async def refuse_calls(self, answer: Answer, why: str) -> None:
        for call in answer.calls:
            if not await executor.recall_result(self.scope, self.peers, call):
                await executor.refuse_call(self.scope, call, why)

    async def _load_request(
        self,
        tool_choice: str,
        parallel: bool,
        reasoning: bool | None,
        form: OutputForm | None,
    ) -> bytes:
        """Return the request, serialized: only its bytes are kept while the model answers, not the chat's messages."""
        messages = await self.context.load_messages()
        if self.context.has_left:
            self._offer_history_tools()
        model, schemas = self.scope.settings.model, self.scope.tools.schemas
        self.run.block_names.tool_ids.update(call.id for message in messages for call in message.tool_calls)
        request = llm_pb2.ChatRequest(
            provider_key=model.provider_key or "",
            model=model.model or "",
            messages=messages,
            tools=schemas,
            temperature=model.temperature,
            top_p=model.top_p,
            max_tokens=model.max_tokens,
            stage=self.scope.stage.name,
            output_format=None if form is None else form.format,
        )
        if schemas:
            request.tool_choice = tool_choice
            request.parallel_tool_calls = parallel
        if model.reasoning is not None:
            request.reasoning.enabled = model.reasoning.enabled is not False
            request.reasoning.effort = model.reasoning.effort or ""
        if reasoning is not None:
            request.reasoning.enabled = reasoning
        return request.SerializeToString()

    async def _stream_fitting(self, turn: _Turn, answer: Answer, output_tokens_max: int | None) -> None:
        """If the turn is too long, compact and try again within the same budgeted call."""
        try:
            await stream_model(self.peers, self.run.spending, turn.limit_output(output_tokens_max), answer)
        except ContextLengthExceeded:
            shorter = await self.context.load_shortened() if answer.is_empty else None
            if shorter is None:
                raise
            again = llm_pb2.ChatRequest.FromString(turn.request)
            del again.messages[:]
            again.messages.extend(shorter)
            turn.request = again.SerializeToString()
            turn.counted_bytes = len(turn.request)
            await stream_model(self.peers, self.run.spending, turn.limit_output(output_tokens_max), answer)


def select_history_tools(scope: Scope, tools: Collection[tools_pb2.Tool]) -> list[tools_pb2.Tool]:
    if not scope.settings.may_use_tools:
        return []
    known = {tool.name for tool in tools}
    return [tool for tool in recall.HISTORY_TOOLS if tool.name not in known]


def _add_repair(request: bytes, text: str, problem: str) -> bytes:
    """Append an answer with the wrong form, and a request for a better one; the log has neither."""
    again = llm_pb2.ChatRequest.FromString(request)
    again.messages.add(role="assistant").content.add(text=text)
    again.messages.add(role="user").content.add(text=output_form.REPAIR_PROMPT.format(problem=problem))
    if again.tools:
        again.tool_choice = "none"
    return again.SerializeToString()
