"""Following a chat while the facade and the orchestrator are killed gives each event once and in order."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from headrace.sse import SseReader
from tests.support.order import TERMINAL, fold
from tests.support.suite import Suite, fresh_suite, kill_service

RULES = [
    {"match": {"text": "^slow$"}, "steps": [{"content": "Hel"}, {"waitMs": 1500}, {"content": "lo"}]},
    {"steps": [{"content": "fine"}]},
]


class Follower:
    """Reads a chat like a browser: it reconnects with the id of the last event it has."""

    def __init__(self, suite: Suite, chat_id: str) -> None:
        self.deltas: list[dict[str, Any]] = []
        self._suite = suite
        self._chat_id = chat_id

    async def read(self) -> None:
        while True:
            headers = {"Last-Event-ID": self.deltas[-1]["cursor"]} if self.deltas else {}
            url = f"{self._suite.url}/api/follow?chatId={self._chat_id}"
            with suppress(aiohttp.ClientError):
                async with self._suite.http.get(url, headers=headers) as response:
                    reader = SseReader()
                    async for chunk in response.content.iter_any():
                        self.deltas += [json.loads(frame.data) for frame in reader.feed(chunk)]
            await asyncio.sleep(0.1)

    async def until(self, run_id: str) -> None:
        while not any(delta["runId"] == run_id and delta["delta"]["type"] in TERMINAL for delta in self.deltas):
            await asyncio.sleep(0.05)


@asynccontextmanager
async def following(suite: Suite, chat_id: str) -> AsyncGenerator[Follower]:
    follower = Follower(suite, chat_id)
    reading = asyncio.create_task(follower.read())
    try:
        yield follower
    finally:
        reading.cancel()


def find_run_id(events: list[dict[str, Any]]) -> str:
    return next(event["runId"] for event in events if event["type"] == "run.start")


@pytest.mark.nightly
async def test_a_follower_gets_each_event_once_though_facade_and_orchestrator_are_killed(tmp_path: Path) -> None:
    async with asyncio.timeout(600), fresh_suite(tmp_path, form="--split") as suite:
        suite.play(*RULES)
        runs = [await suite.ask("one", "react")]
        chat_id = runs[0][1]["chatId"]
        async with following(suite, chat_id) as follower:
            for victim in ("facade", "orchestrator"):
                events_before: list[dict[str, Any]] = []
                async with suite.query("slow", "react", chatId=chat_id) as events:
                    async for event in events:
                        events_before.append(event)
                        if event["type"] == "content.delta":
                            break
                await kill_service(suite, victim)
                runs.append(await suite.follow(find_run_id(events_before)))
                runs.append(await suite.ask("two", "react", chatId=chat_id))
            await follower.until(find_run_id(runs[-1]))
        deltas = follower.deltas
    ids = [find_run_id(run) for run in runs]
    assert list(dict.fromkeys(delta["runId"] for delta in deltas)) == ids
    places = [(delta["runId"], delta["delta"]["seq"]) for delta in deltas]
    assert len(set(places)) == len(places) == len({delta["cursor"] for delta in deltas})
    for run_id, run in zip(ids, runs, strict=True):
        run_deltas = [delta["delta"] for delta in deltas if delta["runId"] == run_id]
        assert [event["seq"] for event in run_deltas] == sorted(event["seq"] for event in run_deltas)
        assert fold(run_deltas) == fold(run)
