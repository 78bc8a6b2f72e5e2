"""Structured answers: filters the text that a caller may receive.

Agents write text before they call tools, and a wrong answer is retracted, which no stream of this API can
express. Text is therefore left out unless it starts like JSON, and the end carries the run's final answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence

from headrace.errors import OutputMismatch
from headrace.run_states import State
from headrace.runs.parts import RUN, Block, BlockBegun, BlockEnded, BlocksLost, TextAdded
from headrace.v1 import common_pb2
from services.facade.openai_api.events import RunEnded, RunEvent

JSON_STARTS = ("{", "[")

OUTPUT_ID = "output"
"""Block id of an answer that was not streamed."""

TAKEN_BACK = common_pb2.Failure(
    code=OutputMismatch.reason,
    message="the answer did not have its form and was asked for again, which a stream cannot take back; ask again",
    retriable=True,
)


async def keep_output(events: AsyncIterator[RunEvent], *, is_stream: bool) -> AsyncGenerator[RunEvent]:
    """Yield a run's events without any text except the answer's."""
    gate = _OutputGate(is_stream=is_stream)
    async for event in events:
        for kept in gate.filter_event(event):
            yield kept
        if isinstance(event, RunEnded) or gate.is_broken:
            return


class _OutputGate:
    def __init__(self, *, is_stream: bool) -> None:
        self._is_stream = is_stream
        self.is_broken = False
        self._held: dict[str, list[RunEvent]] = {}
        """Events of text blocks whose start is still undecided, or that contain other text."""
        self._sent: set[str] = set()
        self._last_held: list[RunEvent] = []

    def filter_event(self, event: RunEvent) -> list[RunEvent]:
        match event:
            case BlockBegun(block=block) if block.is_answer:
                self._held[block.id] = [event]
                return []
            case TextAdded() | BlockEnded() if event.block.id in self._held:
                return self._hold(event)
            case BlocksLost() if self._sent:
                return self._break_off(event)
            case RunEnded():
                return [*self._build_answer(event), event]
            case _:
                return [event]

    def _hold(self, event: TextAdded | BlockEnded) -> list[RunEvent]:
        held = self._held[event.block.id]
        held.append(event)
        self._last_held = held
        if not (self._is_stream and _begins_as_json(held)):
            return []
        if self._sent:
            return self._break_off(event)
        self._sent.add(event.block.id)
        return self._held.pop(event.block.id)

    def _break_off(self, event: RunEvent) -> list[RunEvent]:
        self.is_broken = True
        return [RunEnded(event.seq, State.FAILED, failure=TAKEN_BACK)]

    def _build_answer(self, end: RunEnded) -> list[RunEvent]:
        """Return the events of the answer as one block; empty if it was streamed or the run has none."""
        text = end.output or "".join(_list_texts(self._last_held))
        if self._sent or not text or end.reason in (State.FAILED, State.CANCELLED, "calls"):
            return []
        seq = end.seq - 1
        block = Block("content", OUTPUT_ID, seq, RUN, is_answer=True, pieces=[text], is_complete=True)
        start, ended = BlockBegun(seq, block, is_again=False), BlockEnded(seq, block)
        return [start, TextAdded(seq, block, text, text), ended]


def _begins_as_json(held: Sequence[RunEvent]) -> bool:
    """Return whether a block starts like JSON; pieces are not joined because this is checked with each of them."""
    begin = next((text for text in map(str.lstrip, _list_texts(held)) if text), "")
    return begin.startswith(JSON_STARTS)


def _list_texts(held: Sequence[RunEvent]) -> Iterator[str]:
    return (event.text for event in held if isinstance(event, TextAdded))
