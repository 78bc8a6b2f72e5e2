"""The async client over the suite's own channels, which reach services in the same process through memory."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import grpc

from headrace.client import Client
from headrace.contract import RPCS
from services.runtime.rpc.channels import open_channel


@asynccontextmanager
async def open_client(address: str, *, memory_address: str = "", token: str = "") -> AsyncGenerator[Client]:
    """Open a client that does not reattach to a cut stream."""
    async with open_channel(address) as channel, open_channel(memory_address or address) as memory:
        routed = cast(grpc.aio.Channel, _Channels(channel, memory))
        async with Client(channel=routed, token=token, reattach_s=0) as client:
            yield client


class _Channels:
    """Gives each call to the channel of its service."""

    def __init__(self, orchestrator: grpc.aio.Channel, memory: grpc.aio.Channel) -> None:
        self._orchestrator, self._memory = orchestrator, memory

    def __getattr__(self, kind: str) -> Any:
        def make_call(method: str, *args: Any, **options: Any) -> Any:
            is_of_memory = RPCS[method].server == "memory"
            return getattr(self._memory if is_of_memory else self._orchestrator, kind)(method, *args, **options)

        return make_call
