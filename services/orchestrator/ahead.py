"""What a run's first turn needs and its log does not say: asked while its query is on the way to the disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class Ahead:
    """Questions of one run that were asked before their answers are wanted. Used on the event loop only."""

    __slots__ = ("_asked",)

    def __init__(self) -> None:
        self._asked: dict[Hashable, asyncio.Task[Any]] = {}

    def ask(self, what: Hashable, question: Coroutine[Any, Any, Any]) -> None:
        """Ask now; `what` names the question. Called inside `asking`."""
        self._asked[what] = asyncio.create_task(question)

    async def answer(self, what: Hashable, question: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The answer of a question that was asked ahead, once; else it is asked now. Raises what the question does."""
        asked = self._asked.pop(what, None)
        return await (question() if asked is None else asked)

    @asynccontextmanager
    async def asking(self) -> AsyncGenerator[None]:
        """Drop, at the end of the block, what nobody has wanted."""
        try:
            yield
        finally:
            for task in self._asked.values():
                task.cancel()
            await asyncio.gather(*self._asked.values(), return_exceptions=True)
            self._asked.clear()
