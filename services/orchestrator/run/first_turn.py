"""The request of a run's first turn to memory, which goes along with its query line (docs/decisions/0012)."""

from __future__ import annotations

import asyncio

from headrace.v1 import memory_pb2

LOOP_TURNS_MAX = 20
"""Turns of the loop that the query line waits for the request, which takes a dozen where nothing has to be fetched."""


class FirstTurn:
    """Belongs to a run whose work begins before its query is stored, in a chat that is taken to have no state."""

    def __init__(self) -> None:
        self.state: memory_pb2.GetStateResponse | None = None
        """The state that the chat has in truth; None while it is taken to be empty."""
        self._request: memory_pb2.LoadContextRequest | None = None
        self._is_sent = False
        self._loaded: asyncio.Future[memory_pb2.LoadContextResponse | None] = asyncio.get_running_loop().create_future()

    async def load_context(self, request: memory_pb2.LoadContextRequest) -> memory_pb2.LoadContextResponse | None:
        """Return the answer that came with the stored query; None if memory has to be asked."""
        if self._is_sent or self._request is not None:
            return None
        self._request = request
        return await self._loaded

    async def wait_for_request(self) -> memory_pb2.LoadContextRequest | None:
        """Return the request to send along, None if it takes longer; later ones are not taken."""
        for _ in range(LOOP_TURNS_MAX):
            if self._request is not None:
                break
            await asyncio.sleep(0)
        self._is_sent = True
        return self._request

    def take_answer(self, response: memory_pb2.BeginRunResponse) -> bool:
        """Give the work its messages; return False if the chat has a state, so that the work must begin again."""
        if not response.HasField("state") or response.state.state != "{}":
            self.state, self._request = response.state, None
            return False
        if not self._loaded.done():
            self._loaded.set_result(response.context if response.HasField("context") else None)
        return True
