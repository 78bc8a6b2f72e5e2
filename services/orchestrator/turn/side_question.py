"""Short, optional questions to the agent's model beside its turns, charged to the run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import structlog

from headrace.errors import BudgetExceeded, HeadraceError
from headrace.streams import reading
from headrace.v1 import llm_pb2
from services.runtime.rpc.call_ids import forward_metadata

if TYPE_CHECKING:
    from services.orchestrator.agents.definition import ModelConfig
    from services.orchestrator.peers.stubs import Peers
    from services.orchestrator.run.run import Run

TIMEOUT_S = 20.0

log = structlog.get_logger()


async def ask_model(run: Run, peers: Peers, stage: str, system: str, text: str) -> str:
    """Return an empty text when the call fails, or the next turn needs the last call."""
    if run.spending.model_calls_left <= 1:
        return ""
    answer: list[str] = []
    model = run.main.settings.model
    try:
        run.spending.reserve_model_call()
        timeout_s = min(TIMEOUT_S, run.spending.time_left_s)
        rpc = peers.llm.StreamChat(
            make_question(model, stage, system, text), timeout=timeout_s, metadata=forward_metadata()
        )
        async with asyncio.timeout(timeout_s), reading(rpc) as deltas:
            async for delta in deltas:
                answer.append(delta.content)
                if delta.HasField("usage"):
                    run.spending.settle(delta.usage)
    except BudgetExceeded:
        return ""  # tokens or money are spent: the turn itself will report it
    except (HeadraceError, TimeoutError, grpc.aio.AioRpcError) as error:
        reason = error.reason if isinstance(error, HeadraceError) else type(error).__name__
        log.warning("question beside the turns not answered", run_id=run.id, stage=stage, reason=reason)
        return ""
    return "".join(answer)


def make_question(model: ModelConfig, stage: str, system: str, text: str) -> llm_pb2.ChatRequest:
    request = llm_pb2.ChatRequest(provider_key=model.provider_key or "", model=model.model or "", stage=stage)
    if model.reasoning is not None:
        request.reasoning.enabled = False
    request.messages.add(role="system").content.add(text=system)
    request.messages.add(role="user").content.add(text=text)
    return request
