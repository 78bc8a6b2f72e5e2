"""An LlmService that plays turns."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from typing import Any

import grpc

from headrace.errors import HeadraceError
from headrace.v1 import llm_pb2, llm_pb2_grpc
from tests.support.orchestrator.steps import Step, summary

_TIME = re.compile(r"(<system_reminder>\n)Current time: .* UTC\n")


def hide_time(request: llm_pb2.ChatRequest) -> llm_pb2.ChatRequest:
    """Return a request without the time after each question, which most tests do not expect."""
    copy = llm_pb2.ChatRequest()
    copy.CopyFrom(request)
    for message in copy.messages:
        for part in message.content:
            if _TIME.match(part.text):
                part.text = _TIME.sub(r"\1", part.text)
        parts = [part for part in message.content if part.text != "<system_reminder>\n</system_reminder>"]
        del message.content[:]
        message.content.extend(parts)
    return copy


class ScriptedLlm(llm_pb2_grpc.LlmServiceServicer):
    """Plays one list of steps for each call, repeating the last one, and records the requests.

    Calls next to the turns (summaries, insights) have their own steps and requests, by stage.
    """

    def __init__(self, *turns: list[Step]) -> None:
        self.turns = list(turns)
        self.reply: Callable[[llm_pb2.ChatRequest], list[Step]] | None = None
        """Played instead of `turns` if the order of requests is not fixed."""
        self.requests: list[llm_pb2.ChatRequest] = []
        """The requests without the time."""
        self.raw_requests: list[llm_pb2.ChatRequest] = []
        self.aside: dict[str, list[Step]] = {"compact": summary()}
        self.aside_requests: list[llm_pb2.ChatRequest] = []
        self.models: list[llm_pb2.ModelInfo] | HeadraceError = []
        self.models_asked = 0
        self.embedded: list[llm_pb2.EmbedResponse | HeadraceError] = [
            llm_pb2.EmbedResponse(provider_key="p", model="e", embeddings=[llm_pb2.Embedding(vector=b"12345678")])
        ]
        """Replies of Embed in turn; the last one is repeated."""
        self.embed_requests: list[llm_pb2.EmbedRequest] = []
        self.embedding = asyncio.Event()
        """Awaited by each Embed."""
        self.embedding.set()
        self.open = 0

    async def ListModels(self, request: llm_pb2.ListModelsRequest, context: Any) -> llm_pb2.ListModelsResponse:
        self.models_asked += 1
        if isinstance(self.models, HeadraceError):
            raise self.models
        models = [info for info in self.models if info.model == request.model]
        return llm_pb2.ListModelsResponse(models=models)

    async def ListProviders(self, request: llm_pb2.ListProvidersRequest, context: Any) -> llm_pb2.ListProvidersResponse:
        return llm_pb2.ListProvidersResponse(providers=[llm_pb2.ProviderHealth(provider_key="scripted")])

    async def Embed(self, request: llm_pb2.EmbedRequest, context: Any) -> llm_pb2.EmbedResponse:
        self.embed_requests.append(request)
        await self.embedding.wait()
        reply = self.embedded.pop(0) if len(self.embedded) > 1 else self.embedded[0]
        if isinstance(reply, HeadraceError):
            raise reply
        return reply

    async def StreamChat(self, request: llm_pb2.ChatRequest, context: Any) -> AsyncGenerator[llm_pb2.LlmDelta]:
        if request.stage in self.aside:
            steps = self.aside[request.stage]
            self.aside_requests.append(request)
        else:
            self.raw_requests.append(request)
            request = hide_time(request)
            steps = self.reply(request) if self.reply else self.turns[min(len(self.requests), len(self.turns) - 1)]
            self.requests.append(request)
        self.open += 1
        try:
            yield llm_pb2.LlmDelta(started=llm_pb2.LlmStarted(provider="scripted", model="m", attempt=1))
            for step in steps:
                if isinstance(step, HeadraceError):
                    raise step
                if isinstance(step, (int, float)):
                    await asyncio.sleep(step)
                elif isinstance(step, asyncio.Barrier):
                    await step.wait()
                elif isinstance(step, str):
                    # Without details, like the end of a connection.
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
                else:
                    yield step
        finally:
            self.open -= 1
