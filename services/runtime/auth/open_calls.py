"""Calls that go on, and end when the credential that they were begun with does. One timer looks at all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from headrace.errors import CredentialEnded
from services.runtime.auth.identity import Identity

LOOK_S = 1.0


class OpenCalls:
    def __init__(self, check: Callable[[Identity], None]) -> None:
        """`check` raises CredentialEnded where an identity's credential is of no use any more."""
        self._check = check
        self._open: dict[asyncio.Timeout, Identity] = {}

    @asynccontextmanager
    async def ending(self, who: Identity) -> AsyncGenerator[None]:
        """Run the block for as long as the credential of `who` is good; raises CredentialEnded."""
        ending = asyncio.timeout(None)
        try:
            async with ending:
                self._open[ending] = who
                yield
        except TimeoutError:
            if ending.expired():
                self._check(who)
                raise CredentialEnded("the credential had ended; show it again") from None
            raise
        finally:
            self._open.pop(ending, None)

    async def watch(self) -> None:
        """Look at all calls every second, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """End the calls whose credentials have ended."""
        now = asyncio.get_running_loop().time()
        for ending, who in [*self._open.items()]:
            try:
                self._check(who)
            except CredentialEnded:
                ending.reschedule(now)
                del self._open[ending]  # each is ended once
