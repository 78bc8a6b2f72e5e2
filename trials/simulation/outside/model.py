"""The model of a simulated world, served through the gateway's contract."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from headrace.errors import BadFrame, Overloaded
from headrace.v1 import llm_pb2, llm_pb2_grpc
from trials.simulation.outside.answers import choose_answer
from trials.simulation.outside.outside import make_break
from trials.simulation.plan import GATEWAY
from trials.simulation.world.definitions import USD_PER_MTOK

if TYPE_CHECKING:
    from trials.simulation.outside.outside import Outside

WINDOWS = {"m": (128_000, 4096), "small": (7000, 500)}
"""Window and longest answer of models, in tokens."""


class Model(llm_pb2_grpc.LlmServiceServicer):
    """Replaces the gateway and its providers."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    async def ListModels(self, request: llm_pb2.ListModelsRequest, context: Any) -> llm_pb2.ListModelsResponse:
        response = llm_pb2.ListModelsResponse()
        if (limits := WINDOWS.get(request.model)) is not None:
            window, answer = limits
            response.models.add(
                provider_key=request.provider_key,
                model=request.model,
                context_window_tokens=window,
                output_tokens_max=answer,
                output_usd_per_mtok=USD_PER_MTOK,
                output_usd_per_mtok_max=USD_PER_MTOK,
                input_usd_per_mtok=0,
                input_usd_per_mtok_max=0,
            )
        return response

    async def StreamChat(self, request: llm_pb2.ChatRequest, context: Any) -> AsyncGenerator[llm_pb2.LlmDelta]:
        outside, random = self._outside, self._outside.random
        outside.check_request(request)
        yield llm_pb2.LlmDelta(started=llm_pb2.LlmStarted(provider="scripted", model=request.model, attempt=1))
        deltas = choose_answer(request, random)
        for number, delta in enumerate(deltas):
            await asyncio.sleep(random.uniform(*outside.delay_s))
            # Decided before each delta, so that faults hit calls in progress.
            if random.random() * len(deltas) < outside.model_fault:
                await self._fail(number)
            yield delta

    async def _fail(self, number: int) -> None:
        fault = self._outside.random.choice(("error", "overloaded", "stall", "cut"))
        when = "before" if number == 0 else "after"
        self._outside.story.tell(f"model    {fault} {when} its first delta", count=f"model {fault} {when} first delta")
        self._outside.story.bite("model", GATEWAY)
        match fault:
            case "error":
                raise BadFrame("the model said something unreadable")
            case "overloaded":
                raise Overloaded("the model is busy", retry_after_s=1.0)
            case "stall":
                await asyncio.sleep(self._outside.random.choice((5.0, 60.0)))
            case _:
                raise make_break()
