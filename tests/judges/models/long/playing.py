"""Long chats with the whole suite, one for each provider, and their requests.

Ada and Bob have a key each. All chats are at the same question when a process is killed.
"""

import asyncio
import io
import json
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import aiohttp
from PIL import Image

from services.simulator.server import simulator
from tests.judges.models.conversations import PROVIDERS, TIMEOUT_S, list_capabilities
from tests.judges.models.long.script import SUMMARISE, Question
from tests.judges.models.long.shown import View
from tests.support.issuing import INTERNAL, keys_file
from tests.support.order import Event
from tests.support.suite import Suite, kill_service, up

TOOLS = ["mock_city_weather", "_bash_", "read_file", "write_file", "todo_write"]
JOINS_AT = 4
"""Number of the question from which on Bob asks each third one."""

INTERRUPTING = {"steered": "steer", "cancel": "cancel"}
"""By a question's kind, what is called while its tool runs."""

PICTURE = io.BytesIO()
Image.linear_gradient("L").save(PICTURE, format="PNG")


@dataclass(frozen=True)
class ModelRequest:
    """A request as its provider received it."""

    body: dict[str, Any]
    at_ms: float
    """Unix time of its arrival."""

    @cached_property
    def view(self) -> View:
        return View.read(self.body)


@dataclass
class LongChat:
    provider: str
    suites: Sequence[Suite]
    """As Ada and as Bob sees it."""
    chat_id: str = ""
    asked: list[ModelRequest] = field(default_factory=list[ModelRequest])

    async def ask(self, question: Question, crash: asyncio.Barrier | None = None) -> None:
        """Ask one question and act by its kind; at a crash wait for the kill and for the service's return."""
        is_bobs = question.number >= JOINS_AT and (question.kind == "joined" or question.number % 3 == 1)
        suite = self.suites[is_bobs]
        if question.number == JOINS_AT:
            await self._do("share", participants=["user:bob"])
        fields = await self._upload(question) if question.kind in ("uploaded", "picture") else {}
        if self.chat_id:
            fields["chatId"] = self.chat_id
        received: list[Event] = []
        run_id = ""
        async with suite.query(question.text, self.provider, **fields) as events:
            async for event in events:
                received.append(event)
                self.chat_id = event.get("chatId") or self.chat_id
                run_id = event.get("runId") or run_id
                if event["type"] == "tool.end" and question.kind in INTERRUPTING:
                    await self._interrupt(suite, question, run_id)
                if event["type"] == "content.delta" and crash is not None:
                    break
        if crash is not None:
            await crash.wait()
            await crash.wait()
            received += await suite.follow(run_id)
        ends = {"cancel": "run.cancel", "fail": "run.error"}.get(question.kind, "run.complete")
        assert received[-1]["type"] == ends, (question, received[-1])
        if question.kind == "pinned":
            n = next(line["_n"] for line in self.read_log() if line.get("query", {}).get("message") == question.text)
            await self._do("pin", n=n)

    def read_log(self) -> list[dict[str, Any]]:
        path = self.suites[0].data_dir / "chats" / f"{self.chat_id}.json"
        return [json.loads(line) for line in path.read_bytes().splitlines()]

    async def compact(self) -> None:
        events = await self.suites[0].compact(self.chat_id)
        assert "compaction.complete" in [event["type"] for event in events], events

    async def _do(self, what: str, **fields: Any) -> None:
        status, answer = await self.suites[0].post(f"/api/chat/{what}", {"chatId": self.chat_id, **fields})
        assert status == 200, answer

    async def _interrupt(self, suite: Suite, question: Question, run_id: str) -> None:
        message = {} if question.fact is None else {"message": question.fact.text.format(question.fact.value)}
        status, answer = await suite.post(f"/api/{INTERRUPTING[question.kind]}", {"runId": run_id} | message)
        assert status == 200, answer

    async def _upload(self, question: Question) -> dict[str, Any]:
        form = aiohttp.FormData({"chatId": self.chat_id})
        if question.file:
            form.add_field("file", question.file.encode(), filename=f"list{question.number}.txt")
        else:
            form.add_field("file", PICTURE.getvalue(), filename="slope.png")
        async with self.suites[0].http.post(f"{self.suites[0].url}/api/upload", data=form) as response:
            return {"references": [(await response.json())["data"]]}


@dataclass
class LongChats:
    chats: dict[str, LongChat]
    """By provider."""
    refused: list[Any]
    """Bodies that the simulator has refused, as each provider does."""

    @property
    def suite(self) -> Suite:
        return next(iter(self.chats.values())).suites[0]

    async def play(self, questions: Iterable[Question], crashes: Mapping[int, str], compact_at: int) -> None:
        """Ask all questions in all chats; at those of `crashes` the service of that name is killed."""
        for question in questions:
            if victim := crashes.get(question.number):
                crash = asyncio.Barrier(len(self.chats) + 1)
                async with asyncio.TaskGroup() as group:
                    for chat in self.chats.values():
                        group.create_task(chat.ask(question, crash))
                    await crash.wait()
                    await kill_service(self.suite, victim)
                    await crash.wait()
            else:
                await asyncio.gather(*(chat.ask(question) for chat in self.chats.values()))
            if question.number == compact_at:
                await asyncio.gather(*(chat.compact() for chat in self.chats.values()))
            self._collect()
        await self.suite.simulator.until_idle()
        self._collect()

    def _collect(self) -> None:
        """Group the received requests by their chats."""
        requests = self.suite.simulator.requests
        now_ms, now_s = time.time() * 1000, time.monotonic()
        while requests and requests[0].ended_at_s is not None:
            request = requests.popleft()
            at_ms = now_ms - (now_s - request.started_at_s) * 1000
            # Some protocols name the model in the path.
            named = f"{request.path}:{request.body.get('model')}"
            chat = next(chat for provider, chat in self.chats.items() if f"long-{provider}" in named)
            if request.status == 400 and "Question" in json.dumps(request.body):
                self.refused.append(request.body)
            chat.asked.append(ModelRequest(request.body, at_ms))


def write_config(folder: Path, base_url: str, providers: Iterable[str], window: int) -> None:
    (folder / "agents").mkdir(parents=True)
    entries: list[dict[str, Any]] = []
    for provider in providers:
        capabilities = list_capabilities(provider)
        model: dict[str, Any] = {"name": f"long-{provider}", "capabilities": capabilities}
        model |= {"contextWindow": window, "maxOutput": window // 10}
        entry: dict[str, Any] = {"key": provider, "protocol": "openai", "baseUrl": base_url, "models": [model]}
        entries.append(entry | PROVIDERS[provider] | {"retry": {"maxAttempts": 1}})
        chosen: dict[str, Any] = {"providerKey": provider, "model": model["name"]}
        if "reasoning" in capabilities:
            chosen["reasoning"] = {"enabled": True}
        agent = {
            "mode": "REACT",
            "react": {"systemPrompt": "You help a crew."},
            "toolConfig": {"backends": TOOLS},
            "memory": {"maxRuns": 1000},
            "modelConfig": chosen,
        }
        (folder / "agents" / f"{provider}.json").write_text(json.dumps(agent))
    (folder / "providers.json").write_text(json.dumps({"providers": entries}))


@asynccontextmanager
async def prepared(
    folder: Path, questions: Sequence[Question], providers: Sequence[str], window: int, form: str
) -> AsyncGenerator[LongChats]:
    """Serve the suite inside the block, with a chat for each provider that is yet to begin."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    env = {"HEADRACE_AUTH": "api_key", "HEADRACE_INTERNAL_TOKEN": INTERNAL, "HEADRACE_DRAIN_S": "0.2"}
    env["HEADRACE_AUTH_API_KEYS_FILE"] = str(keys_file(folder, ada="acme/ada", bob="acme/bob"))
    # After a run that failed, the model is asked two questions: the latter counts.
    rules = [SUMMARISE, *(rule for question in reversed(questions) for rule in question.rules)]
    async with simulator(rules) as sim:
        write_config(folder / "config", sim.base_url, providers, window)
        options = ("--config-dir", str(folder / "config"), "--data-dir", str(folder / "data"))
        async with (
            up(*options, form=form, **env) as running,
            aiohttp.ClientSession(timeout=timeout, headers={"Authorization": "Bearer ada"}) as ada,
            aiohttp.ClientSession(timeout=timeout, headers={"Authorization": "Bearer bob"}) as bob,
        ):
            suite = Suite(
                running.url, running.grpc, running.memory, folder / "config", folder / "data", sim, ada, running.process
            )
            suites = (suite, replace(suite, http=bob))
            yield LongChats({provider: LongChat(provider, suites) for provider in providers}, [])
