"""Calls of models: the streamed call of a turn, and short, optional side questions charged to the run.

A turn's call is bounded by the run's time, and by `modelTimeoutMs` of silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import grpc
import structlog

from headrace.errors import BudgetExceeded, HeadraceError, ProviderUnavailable, StreamStalled
from headrace.streams import reading
from headrace.v1 import llm_pb2
from services.orchestrator.money.charges import Origin, estimate_untold
from services.orchestrator.money.spending import Spending
from services.orchestrator.peers.models import estimate_tokens, measure_needs
from services.orchestrator.peers.recorder import RECORDER
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.answers.answer import Answer
from services.orchestrator.run.scope import check_turn
from services.runtime.rpc.peer_calls import was_broken_connection
from services.runtime.rpc.push_stream import push_messages

if TYPE_CHECKING:
    from services.orchestrator.agents.definition import ModelConfig
    from services.orchestrator.money.charges import Reservation
    from services.orchestrator.peers.models import CallNeeds
    from services.orchestrator.run.run import Run

log = structlog.get_logger()


METHOD = "LlmService/StreamChat"

CHECKS = 4
"""Consecutive silent checks, within the limit's time, that mean a stall; a single one may mean that this process was
paused. Checking on a timer costs nothing per delta."""


async def stream_model(peers: Peers, spending: Spending, request: bytes, answer: Answer) -> None:
    """Call the model and pass its stream to `answer`.

    Raises:
        StreamStalled: Nothing arrived for too long.
        BudgetExceeded: The run's time is used up.
        HeadraceError: The gateway's error.
    """
    if (recorder := RECORDER.get()) is None:
        await _push_answer(peers, spending, request, answer, answer.take)
        return
    with recorder.calling(METHOD, request) as call:

        def note_and_take(delta: bytes) -> None:
            call.note(delta)
            answer.take(delta)

        await _push_answer(peers, spending, request, answer, note_and_take)


async def _push_answer(
    peers: Peers, spending: Spending, request: bytes, answer: Answer, take: Callable[[bytes], None]
) -> None:
    call = peers.stream_chat(request, timeout=spending.time_left_s)
    limit_s = spending.limits.model_timeout_ms / 1000
    silence = asyncio.timeout(None)
    try:
        async with silence:
            with _SilenceWatch(silence, answer, limit_s):
                await push_messages(call, take)
    except TimeoutError as error:
        if not silence.expired():
            raise
        raise StreamStalled(f"the model was silent for {limit_s:g} s (modelTimeoutMs)") from error
    except ProviderUnavailable as error:
        # The answer is complete, only its end is missing.
        if answer.finish_reason and was_broken_connection(error):
            return
        # A call may also be given up as unreachable when its deadline comes before its connection.
        if spending.time_left_s <= 0:
            raise spending.make_exceeded("timeoutMs") from error
        raise
    except grpc.aio.AioRpcError as error:
        # The gateway's errors arrive as HeadraceErrors; others are our own deadline, or a bug of the gateway.
        if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
            raise
        raise spending.make_exceeded("timeoutMs") from error
    if not answer.finish_reason:
        raise ProviderUnavailable("the model's stream ended before its answer was complete; try again")


class _SilenceWatch:
    """Lets `silence` expire after that long without progress."""

    def __init__(self, silence: asyncio.Timeout, answer: Answer, limit_s: float) -> None:
        self._silence = silence
        self._answer = answer
        self._pause_s = limit_s / CHECKS
        self._seen: object = answer.progress
        self._silent_checks = 0

    def __enter__(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._pause_s, self._check)

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _check(self) -> None:
        progress = self._answer.progress
        self._silent_checks = self._silent_checks + 1 if progress == self._seen else 0
        self._seen = progress
        loop = asyncio.get_running_loop()
        if self._silent_checks == CHECKS:
            self._silence.reschedule(loop.time())
        else:
            self._timer = loop.call_later(self._pause_s, self._check)


TIMEOUT_S = 20.0

OUTPUT_TOKENS = 500
"""Room for a few lines."""


async def ask_model(run: Run, peers: Peers, stage: str, system: str, text: str) -> str:
    """Return the answer; empty if the call fails, or if only one call is left, which the next turn needs."""
    if run.spending.model_calls_left <= 1:
        return ""
    answer: list[str] = []
    model = run.main.settings.model
    request = make_question(model, stage, system, text)
    try:
        check_turn(run.main)
        needs = await measure_question(run, peers, model, request)
        async with run.spending.covering(needs):
            with run.spending.side_call(needs) as reservation:
                await stream_charged(
                    run, peers, request, needs, reservation, lambda delta: answer.append(delta.content)
                )
    except BudgetExceeded:
        return ""  # tokens or money are spent: the turn itself will report it
    except (HeadraceError, TimeoutError, grpc.aio.AioRpcError) as error:
        reason = error.reason if isinstance(error, HeadraceError) else type(error).__name__
        log.warning("side question not answered", run_id=run.id, stage=stage, reason=reason)
        return ""
    return "".join(answer)


async def measure_question(run: Run, peers: Peers, model: ModelConfig, request: llm_pb2.ChatRequest) -> CallNeeds:
    is_priced = run.spending.needs_prices
    tokens = estimate_tokens(request.ByteSize())
    return await measure_needs(peers, model, tokens, is_priced=is_priced, usual_tokens=OUTPUT_TOKENS)


async def stream_charged(
    run: Run,
    peers: Peers,
    request: llm_pb2.ChatRequest,
    needs: CallNeeds,
    reservation: Reservation,
    take: Callable[[llm_pb2.LlmDelta], None],
) -> None:
    """Pass the answer's deltas to `take`, within the reservation, and charge the run in any case."""
    if reservation.output_tokens_max is not None:
        request.max_tokens = reservation.output_tokens_max
    timeout_s = min(TIMEOUT_S, run.spending.time_left_s)
    rpc = peers.llm.StreamChat(request, timeout=timeout_s)
    was_asked, model, output_bytes, usage = False, needs.model, 0, None
    try:
        async with asyncio.timeout(timeout_s), reading(rpc) as deltas:
            async for delta in deltas:
                was_asked = True
                if delta.HasField("started"):
                    model = f"{delta.started.provider}/{delta.started.model}"
                output_bytes += len(delta.content.encode()) + len(delta.reasoning.encode())
                usage = delta.usage if delta.HasField("usage") else usage
                take(delta)
    except BaseException as error:
        usage = usage or estimate_untold(needs, error, was_asked=was_asked, output_bytes=output_bytes)
        raise
    finally:
        if usage is not None:
            run.spending.settle(usage, Origin(run.agent.key, model), reservation)


def make_question(model: ModelConfig, stage: str, system: str, text: str) -> llm_pb2.ChatRequest:
    request = llm_pb2.ChatRequest(provider_key=model.provider_key or "", model=model.model or "", stage=stage)
    if model.reasoning is not None:
        request.reasoning.enabled = False
    request.messages.add(role="system").content.add(text=system)
    request.messages.add(role="user").content.add(text=text)
    return request
