"""One run of the orchestrator, its events read as the bytes that they are: a client that parses nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.arrivals import MARK, Arrivals, Stream
from headrace.v1 import agent_pb2
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.push_stream import push_messages

QUERY = "/headrace.v1.AgentService/Query"


class RunFailed(Exception):
    """With the error's code."""


@asynccontextmanager
async def asking(address: str, model: str, arrivals: Arrivals) -> AsyncGenerator[Callable[[Stream], Awaitable[None]]]:
    """Gives what asks the agent named `model` once and reads to the end; all share one connection.

    It is made by services.runtime, and so has the transport that HEADRACE_TRANSPORT names.
    """
    request = agent_pb2.QueryRequest(message="go", agent_key=model, on_disconnect="cancel")
    async with open_channel(address) as channel:
        await channel.channel_ready()
        # Any: a bytes stream has no stub.
        query: Any = channel.unary_stream(
            QUERY, request_serializer=agent_pb2.QueryRequest.SerializeToString, response_deserializer=None
        )

        async def ask(stream: Stream) -> None:
            failures: list[str] = []

            def take(message: bytes) -> None:
                if MARK in message:
                    arrivals.arrived(stream, 1)
                    return
                arrivals.begin(stream)
                event = agent_pb2.AgentDelta.FromString(message)  # of a few at each end of a stream
                if event.HasField("run_error"):
                    failures.append(event.run_error.error.code)

            await push_messages(query(request), take)
            if failures:
                raise RunFailed(*failures)

        yield ask
