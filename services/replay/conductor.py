"""Drives the orchestrator through a cassette: line by line, it delivers inputs and waits for outputs.

So a replay has the order of the recording and produces the same events. It uses the recorded time: silences are
skipped, and timers fire at their recorded times.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from headrace.cassette.lines import Cassette, CassetteLine
from headrace.cassette.methods import load_answer, load_request
from headrace.v1 import agent_pb2
from services.replay.heard import (
    BESIDE,
    UNCOMPARED,
    Difference,
    Heard,
    HeardCall,
    describe,
    differs,
    drop_members,
    event_json,
)
from services.replay.scripted_peers import END, Broken, ScriptedCalls, make_error

TURNS_MAX = 300
"""Turns of the loop without output after which the orchestrator counts as idle: everything runs in one process."""

LATE_MS = 400
"""Maximum delay of timers compared with the recording."""

Tell = Callable[[str, Any, dict[str, Any]], None]
"""Sends the orchestrator a person's request: method, request, and caller."""

LOOK_S = 0.02
"""Longest single jump, so that timers set by earlier timers fire in their order."""

LOOKS_MAX = 200
"""Number of jumps for a silence; in a longer one, jumps are longer."""


class Conductor:
    def __init__(
        self,
        cassette: Cassette,
        heard: Heard,
        calls: ScriptedCalls,
        clock: ReplayClock,
        *,
        speed: float = 0.0,
        on_event: Callable[[agent_pb2.AgentDelta], object] = lambda event: None,
    ) -> None:
        self._cassette = cassette
        self._heard = heard
        self._calls = calls
        self._clock = clock
        self._speed = speed
        self._on_event = on_event
        self._numbers: dict[int, tuple[int, str]] = {}
        """Number in this replay, and method, of each recorded call."""
        self._answers: dict[int, int] = {}
        self._received = 0

    async def follow(self, tell: Tell, stop_at: int = 0) -> int:
        """Follow the cassette to its end, or to the event `stop_at`; return the number of the last event.

        Raises:
            Difference: The orchestrator's output differs.
        """
        seq = 0
        for line in self._cassette.recorder:
            await self._clock.go_to(line.at, self._speed)
            match line.kind:
                case "call":
                    await self._expect_call(line)
                case "answer":
                    await self._say_answer(line)
                case "end":
                    await self._say_end(line)
                case "received":
                    self._received += 1
                    request = _load(line, load_request, line.given["received"], line.given["request"])
                    tell(line.given["received"], request, line.given)
                    await self._wait(line, lambda: self._heard.received >= self._received)
                case "event":
                    seq = await self._expect_event(line)
                    if seq == stop_at:
                        return seq
        await self._come_to_rest()
        if self._heard.events:
            extra = event_json(self._heard.events[0])
            raise Difference(
                f"after the last line: the replay continues with {extra.get('type')} (event {extra['seq']})"
            )
        return seq

    async def _expect_event(self, line: CassetteLine) -> int:
        recorded = line.given["event"]
        if not await self._try(lambda: bool(self._heard.events)):
            raise Difference(
                f"line {line.number}: event {recorded['seq']} ({recorded['type']}) does not come{self._say_waiting()}"
            )
        event = self._heard.events.popleft()
        replayed = event_json(event)
        one, other = drop_members(recorded, BESIDE), drop_members(replayed, BESIDE)
        if differs(one, other):
            raise Difference(
                f"line {line.number}: event {recorded['seq']} ({recorded['type']}): {describe(one, other)}"
            )
        self._on_event(event)
        return recorded["seq"]

    async def _expect_call(self, line: CassetteLine) -> None:
        method = line.given["method"]
        wanted = drop_members(line.given.get("request"), UNCOMPARED)
        if not await self._try(lambda: self._find(method, wanted) is not None):
            other = next((call for call in self._heard.calls if call.method == method), None)
            problem = f"is not called{self._say_waiting()}"
            if other is not None:
                problem = f"is called with another request: {describe(wanted, other.request)}"
            raise Difference(f"line {line.number}: {method} {problem}")
        found = self._find(method, wanted)
        assert found is not None, "it was waited for"
        self._heard.calls.remove(found)
        self._numbers[line.call] = found.number, method

    def _find(self, method: str, wanted: Any) -> HeardCall | None:
        same = (call for call in self._heard.calls if call.method == method)
        return next((call for call in same if not differs(wanted, call.request)), None)

    def _say_waiting(self) -> str:
        """Describe what happened instead of the expected output."""
        if self._heard.events:
            event = event_json(self._heard.events[0])
            return f"; {event.get('type')} comes (event {event['seq']})"
        if self._heard.calls:
            return f"; {self._heard.calls[0].method} is called"
        return "; the orchestrator says nothing"

    async def _say_answer(self, line: CassetteLine) -> None:
        number, method = self._known(line)
        self._answers[number] = self._answers.get(number, 0) + 1
        self._calls.say(number, _load(line, load_answer, method, line.given["message"]))
        wanted = self._answers[number]
        await self._wait(line, lambda: self._heard.answers.get(number, 0) >= wanted or number in self._heard.ended)

    async def _say_end(self, line: CassetteLine) -> None:
        number, _ = self._known(line)
        if "error" in line.given:
            self._calls.say(number, _load(line, lambda _, failure: make_error(failure), "", line.given["error"]))
        elif "status" in line.given:
            self._calls.say(number, Broken(line.given["status"]))
        elif "left" not in line.given:
            self._calls.say(number, END)
        await self._wait(line, lambda: number in self._heard.ended)

    def _known(self, line: CassetteLine) -> tuple[int, str]:
        if line.call not in self._numbers:
            raise Difference(f"line {line.number}: no line before it has the call {line.call}")
        return self._numbers[line.call]

    async def _wait(self, line: CassetteLine, is_there: Callable[[], bool]) -> None:
        if not await self._try(is_there):
            what = line.given["received"] if line.kind == "received" else f"{line.kind} of call {line.call}"
            raise Difference(f"line {line.number}: the orchestrator does not take {what}{self._say_waiting()}")

    async def _try(self, is_there: Callable[[], bool]) -> bool:
        """Wait until `is_there` holds, at most about LATE_MS of the loop's clock later than recorded; return whether it
        does."""
        for late_ms in (0, 5, 20, 75, LATE_MS - 100):
            if late_ms:
                await self._clock.go_to(self._clock.at_ms + late_ms, 0)
            if await self._come_to_rest(is_there):
                return True
        return is_there()

    async def _come_to_rest(self, is_there: Callable[[], bool] = lambda: False) -> bool:
        turns, count = 0, self._heard.count
        while turns < TURNS_MAX:
            if is_there():
                return True
            await asyncio.sleep(0)
            turns = 0 if self._heard.count != count else turns + 1
            count = self._heard.count
        return False


def _load(line: CassetteLine, load: Callable[[str, Any], Any], method: str, given: Any) -> Any:
    try:
        return load(method, given)
    except ValueError as error:
        raise Difference(f"line {line.number}: {error}") from error


class ReplayLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self.ahead_s = 0.0
        """Difference between the loop's clock and the machine's."""

    def time(self) -> float:
        return super().time() + self.ahead_s


class ReplayClock:
    """The wall clock shows the time of the cassette's next line; the other clock is the loop's."""

    def __init__(self, loop: ReplayLoop, began_at_ms: int) -> None:
        self._loop = loop
        self._began_at_ms = began_at_ms
        self._began_s = loop.time()
        self.at_ms = 0
        """Time since the run began."""

    def time_ns(self) -> int:
        return (self._began_at_ms + self.at_ms) * 1_000_000

    def monotonic(self) -> float:
        return self._loop.time()

    def thread_time(self) -> float:
        return time.thread_time()

    def start(self) -> None:
        self._began_s = self._loop.time()

    async def go_to(self, at_ms: int, speed: float) -> None:
        """Wait for the time of the next line: by jumping, or at `speed` times the recorded pace."""
        self.at_ms = max(self.at_ms, at_ms)
        missing_s = self._began_s + at_ms / 1000 - self._loop.time()
        if missing_s <= 0:
            return
        if speed > 0:
            await asyncio.sleep(missing_s if speed == 1 else 0)
            if speed != 1:
                waited_s = missing_s / speed
                await asyncio.sleep(waited_s)
                self._loop.ahead_s += max(0.0, missing_s - waited_s)
            return
        step_s = max(LOOK_S, missing_s / LOOKS_MAX)
        while missing_s > 0:
            self._loop.ahead_s += min(step_s, missing_s)
            missing_s -= step_s
            await asyncio.sleep(0)
