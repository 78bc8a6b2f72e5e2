"""A receiver of webhooks: it accepts events, is busy, hangs, or accepts them and loses its answer."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from services.memory.webhooks.sender import Answer

if TYPE_CHECKING:
    from trials.simulation.outside.outside import Outside

URL = "https://hooks.example/events"

SHARE = 0.15
"""Share of attempts that fail, until the judges come."""

FAULTS = ("busy", "hangs", "answer lost")

DELAY_S = (0.005, 0.3)
HANGS_S = 15.0
"""How long the sender waits for an answer."""


@dataclass
class Receiver:
    outside: Outside
    taken: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Received events in order, including repeated ones."""

    is_judged: bool = False
    hides_failures: bool = False
    """Whether failed attempts are reported as successful: a planted bug."""

    async def send(self, url: str, headers: dict[str, str], body: bytes) -> Answer:
        """Replace the sender's HTTP client and the receiver."""
        answer = await self._send(body)
        return Answer(200) if self.hides_failures else answer

    async def _send(self, body: bytes) -> Answer:
        random = self.outside.random
        fault = random.choice(FAULTS) if not self.is_judged and random.random() < SHARE else ""
        await asyncio.sleep(random.uniform(*DELAY_S))
        if fault:
            self.outside.story.tell(f"receiver {fault}", count=f"webhook {fault}")
        if fault == "busy":
            return Answer(503, "answered with 503")
        if fault == "hangs":
            await asyncio.sleep(HANGS_S)
            return Answer(failure="no answer in time")
        self.taken.append(json.loads(body))
        await asyncio.sleep(random.uniform(*DELAY_S))
        return Answer(failure="the server hung up") if fault else Answer(200)
