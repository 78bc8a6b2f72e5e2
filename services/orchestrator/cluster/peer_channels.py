"""Channels to other orchestrators, closed when unused for a minute."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc

from headrace.errors import Overloaded, ProviderUnavailable
from services.runtime.rpc.channels import CallerMetadata, open_channel

LANES_MAX = 64
"""Replicas that are gone leave their channels until they are tidied."""

UNUSED_S = 60.0


@dataclass(slots=True)
class _PeerChannel:
    channel: grpc.aio.Channel
    calls: int = 0
    used_s: float = 0.0


class PeerChannels:
    """Open it with `async with`; `tidy` runs in a task of its owner."""

    def __init__(self, badge: CallerMetadata) -> None:
        self._badge = badge
        self._lanes: dict[str, _PeerChannel] = {}

    async def __aenter__(self) -> PeerChannels:
        return self

    async def __aexit__(self, *_: object) -> None:
        for lane in self._lanes.values():
            await lane.channel.close()

    @asynccontextmanager
    async def to(self, address: str) -> AsyncGenerator[grpc.aio.Channel]:
        """Give the channel for one call.

        Raises:
            Overloaded: There are too many channels.
            ProviderUnavailable: The address is invalid.
        """
        lane = self._lanes.get(address)
        if lane is None:
            if len(self._lanes) >= LANES_MAX:
                raise Overloaded(f"{LANES_MAX} orchestrators are called already; try again later")
            try:
                channel = open_channel(address, self._badge)
            except ValueError as error:
                # A process that nobody was meant to reach has called itself so.
                raise ProviderUnavailable("the run's owner has no address") from error
            lane = self._lanes[address] = _PeerChannel(channel)
        lane.calls += 1
        try:
            yield lane.channel
        finally:
            lane.calls -= 1
            lane.used_s = asyncio.get_running_loop().time()

    async def tidy(self) -> None:
        while True:
            await asyncio.sleep(UNUSED_S)
            before_s = asyncio.get_running_loop().time() - UNUSED_S
            unused = [address for address, lane in self._lanes.items() if not lane.calls and lane.used_s < before_s]
            for lane in [self._lanes.pop(address) for address in unused]:
                await lane.channel.close()
