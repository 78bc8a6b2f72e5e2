"""Short, optional questions to the agent's model beside its turns, charged to the run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import structlog

from headrace.errors import BudgetExceeded, HeadraceError
from headrace.streams import reading
from headrace.v1 import llm_pb2
from services.orchestrator.money.charges import Origin, estimate_untold
from services.orchestrator.peers.models import estimate_tokens, measure_needs
from services.orchestrator.run.granted import check_turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.orchestrator.agents.definition import ModelConfig
    from services.orchestrator.money.charges import Reservation
    from services.orchestrator.peers.models import CallNeeds
    from services.orchestrator.peers.stubs import Peers
    from services.orchestrator.run.run import Run

TIMEOUT_S = 20.0

OUTPUT_TOKENS = 500
"""Room for a few lines."""

log = structlog.get_logger()


async def ask_model(run: Run, peers: Peers, stage: str, system: str, text: str) -> str:
    """Return an empty text when the call fails, or the next turn needs the last call."""
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
        log.warning("question beside the turns not answered", run_id=run.id, stage=stage, reason=reason)
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
    """Let `take` have the answer's deltas, within what is reserved, and charge the run whatever happens."""
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
