"""A gateway that answers each request with the next of its scripts, and records the requests."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from headrace.v1 import common_pb2, llm_pb2, llm_pb2_grpc
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.server import serving_grpc
from tests.support.scripted_llm import build_service

Step: TypeAlias = str | Exception | None
"""A delta, an error, or silence until the caller leaves."""

USAGE = common_pb2.Usage(input_tokens=100, output_tokens=10, model_calls=1, cost_usd=0.5)


@dataclass
class AskedLlm(llm_pb2_grpc.LlmServiceServicer):
    """A scripted gateway; its address, once served, goes into a tools service's configuration."""

    scripts: Sequence[Sequence[Step]]
    address: str = ""
    requests: list[Any] = field(default_factory=list[Any])
    finish_reason: str = "stop"
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a caller disconnects in mid-answer."""

    async def StreamChat(self, request: Any, context: Any) -> AsyncGenerator[llm_pb2.LlmDelta]:
        script = self.scripts[len(self.requests)]
        self.requests.append(request)
        try:
            yield llm_pb2.LlmDelta(started=llm_pb2.LlmStarted(provider="p", model="m", attempt=1))
            for step in script:
                if isinstance(step, Exception):
                    raise step
                if step is None:
                    await asyncio.Event().wait()
                else:
                    yield llm_pb2.LlmDelta(content=step)
        except asyncio.CancelledError:
            self.left.set()
            raise
        yield llm_pb2.LlmDelta(usage=USAGE)
        yield llm_pb2.LlmDelta(finish=llm_pb2.LlmFinish(reason=self.finish_reason))

    def texts(self) -> list[str]:
        """Return the text of each request's last message."""
        return [request.messages[-1].content[0].text for request in self.requests]


@asynccontextmanager
async def asked_llm(*scripts: Sequence[Step]) -> AsyncGenerator[AskedLlm]:
    llm = AskedLlm(scripts)  # pyright: ignore[reportAbstractUsage] - only questions are asked
    settings = ServerSettings(listen="127.0.0.1:0", drain_s=0)
    async with serving_grpc(settings, [build_service(llm)]) as running:  # pyright: ignore[reportArgumentType] - a servicer like that one
        llm.address = running.addresses[0]
        yield llm
