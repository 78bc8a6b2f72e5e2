"""A run's events as they come, folded on the way.

    async with headrace.ask("Hello") as run:
        async for text in run.text():
            print(text, end="", flush=True)
    print(run.state.answer, run.state.end)

A reader that falls far behind gets whole blocks (snapshots) in the place of deltas, so deltas alone are not the answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from headrace.fold import Fold
from headrace.v1 import agent_pb2


class RunStream(AsyncIterator[agent_pb2.AgentDelta]):
    """Iterates the events; `state` is what they have come to so far."""

    def __init__(self, deltas: AsyncIterator[agent_pb2.AgentDelta]) -> None:
        self.state = Fold()
        self._deltas = deltas

    async def __anext__(self) -> agent_pb2.AgentDelta:
        delta = await anext(self._deltas)
        self.state.apply(delta)
        return delta

    async def text(self) -> AsyncGenerator[str]:
        """Yield the run's own words as they come, each once, with a blank line between two blocks.

        What it says before a tool call is among them, so that all of them may be more than `state.answer`.
        """
        pieces, last_id = _Unrepeated(), ""
        async for delta in self:
            match delta.WhichOneof("payload"):
                case "content_start":
                    block_id, piece, is_start = delta.content_start.content_id, "", True
                case "content_delta":
                    block_id, piece, is_start = delta.content_delta.content_id, delta.content_delta.delta, False
                case "content_snapshot":
                    block_id, piece, is_start = delta.content_snapshot.content_id, delta.content_snapshot.text, True
                case _:
                    continue
            block = self.state.blocks.get(block_id)
            if block is None or not block.is_answer:
                continue
            if is_start:
                pieces.restart_block(block_id)
            if new := pieces.take_new(block_id, piece):
                yield new if last_id in ("", block_id) else f"\n\n{new}"
                last_id = block_id


class _Unrepeated:
    """Leaves out what blocks that begin again repeat."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}
        self._repeated: dict[str, int] = {}
        """Characters that each block still repeats."""

    def restart_block(self, block_id: str) -> None:
        self._repeated[block_id] = self._taken.setdefault(block_id, 0)

    def take_new(self, block_id: str, piece: str) -> str:
        known = min(len(piece), self._repeated[block_id])
        self._repeated[block_id] -= known
        self._taken[block_id] += len(piece) - known
        return piece[known:]
