"""Ordinary conversations with the whole suite, whose providers only record the requests.

Each conversation has its own agent for each provider. Its model's name contains both, and identifies the requests.
"""

import io
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
from PIL import Image

from services.simulator.server import simulator
from tests.support.order import Event
from tests.support.suite import Suite, up
from tests.support.summaries import write_summary

TIMEOUT_S = 300.0

PROVIDERS: dict[str, dict[str, Any]] = {
    "mistral": {"callIds": "nine_characters", "turnOrder": "strict"},
    "open": {"reasoning": "chat_template_kwargs"},
    "responses": {"protocol": "openai_responses"},
    "anthropic": {"protocol": "anthropic"},
    "gemini": {"protocol": "gemini"},
    "bedrock": {"protocol": "bedrock"},
}
"""Settings as docs/reference/providers.md advises: Mistral's service, vLLM or llama.cpp before any open model, and the
other protocols."""

CAPABILITIES = ["tools", "reasoning", "vision", "json_schema"]
"""Of all models but Mistral's, which have no wish for reasoning."""

TOOLS = ["mock_city_weather", "city_datetime", "_bash_"]

Play: TypeAlias = Callable[["Chat"], Awaitable[None]]
Step: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Conversation:
    """The user's messages and the model's answers."""

    play: Play
    rules: Sequence[dict[str, Any]] = ()
    """The simulator's; without any, its built-in model answers."""

    agent: dict[str, Any] = field(default_factory=dict)
    """Fields over those of a REACT agent with tools."""

    is_failure: bool = False
    """Whether a run of it fails, which opens the breaker of its model."""


class Chat:
    """One chat with one agent."""

    def __init__(self, suite: Suite, agent: str) -> None:
        self.suite = suite
        self._agent = agent
        self._chat_id: dict[str, str] = {}

    async def ask(self, message: str, *, ends: str = "run.complete", **fields: Any) -> None:
        """Ask and wait for the run's end, of the given type."""
        await self.ask_until(message, "", ends=ends, **fields)

    async def ask_until(
        self, message: str, until: str, act: Callable[[str], Awaitable[None]] | None = None, *, ends: str, **fields: Any
    ) -> None:
        """Like `ask`; at the first event of type `until`, `act` gets the run's id."""
        last: Event = {}
        async with self.suite.query(message, self._agent, **self._chat_id, **fields) as events:
            async for event in events:
                last = event
                self._chat_id = {"chatId": event.get("chatId") or self._chat_id["chatId"]}
                if act is not None and event["type"] == until:
                    await act(event["runId"])
                    act = None
        assert act is None, f"no {until} came"
        assert last["type"] == ends, last

    async def upload(self, name: str, data: bytes) -> dict[str, Any]:
        """Upload a file into a new chat, and return the reference for a query."""
        form = aiohttp.FormData(self._chat_id)
        form.add_field("file", data, filename=name)
        async with self.suite.http.post(f"{self.suite.url}/api/upload", data=form) as response:
            answer = await response.json()
        self._chat_id = {"chatId": answer["chatId"]}
        return answer["data"]

    async def cancel(self, run_id: str) -> None:
        status, answer = await self.suite.post("/api/cancel", {"runId": run_id})
        assert status == 200, answer

    async def steer(self, run_id: str) -> None:
        status, answer = await self.suite.post("/api/steer", {"runId": run_id, "message": "In Celsius, please."})
        assert (status, answer["data"]["status"]) == (200, "accepted"), answer

    async def compact(self) -> None:
        events = await self.suite.compact(self._chat_id["chatId"])
        assert "compaction.complete" in [event["type"] for event in events], events


def call(name: str, arguments: dict[str, Any], number: int = 1, index: int = 0) -> Step:
    return {"toolCall": name, "id": f"call_{number}", "index": index, "arguments": json.dumps(arguments)}


def look_at(city: str, number: int = 1) -> Step:
    return call("mock_city_weather", {"city": city, "date": "2026-11-28"}, number)


PARIS = look_at("Paris")
LONG = call("_bash_", {"command": "sleep 60"})
SHORT = call("_bash_", {"command": "sleep 0.5"})
FINE = {"steps": [{"content": "Fine."}]}
LOOKED = {"match": {"turn": 2}, "steps": [{"reasoning": "It rains."}, {"content": "Rain."}]}
WORDS = "one two three four five six seven eight nine ten " * 15


def look(*steps: Step) -> list[dict[str, Any]]:
    """Script `steps` for each first turn and an answer for each second one."""
    return [LOOKED, {"match": {"turn": 1}, "steps": list(steps)}]


async def ask_once(chat: Chat) -> None:
    await chat.ask("What is the weather in Paris?")


async def ask_twice(chat: Chat) -> None:
    await chat.ask("What is the weather in Paris?")
    await chat.ask("And tomorrow?")


async def ask_with_a_small_file(chat: Chat) -> None:
    reference = await chat.upload("b.json", b'{"a": 1}')
    await chat.ask("What is in it?", references=[reference])
    await chat.ask("Sure?")


async def ask_with_a_picture(chat: Chat) -> None:
    picture = io.BytesIO()
    Image.linear_gradient("L").save(picture, format="PNG")
    reference = await chat.upload("slope.png", picture.getvalue())
    await chat.ask("What is in it?", references=[reference])
    await chat.ask("Sure?")


async def ask_after_a_compaction(chat: Chat) -> None:
    for number in range(4):
        await chat.ask(f"{number}: {WORDS}")
    await chat.compact()
    await ask_twice(chat)


async def steer_a_run(chat: Chat) -> None:
    await chat.ask_until("Wait.", "tool.start", chat.steer, ends="run.complete")
    await chat.ask("And now?")


async def cancel_a_tool(chat: Chat) -> None:
    await chat.ask_until("Wait.", "tool.start", chat.cancel, ends="run.cancel")
    await chat.ask("And now?")


async def ask_after_a_failure(chat: Chat) -> None:
    await chat.ask("Fail.", ends="run.error")
    await chat.ask("And now?")


async def ask_for_json(chat: Chat) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
        "required": ["city", "people"],
        "additionalProperties": False,
    }
    wanted = {"schema": schema, "name": "place", "strict": True}
    await chat.ask("Which city?", outputFormat=wanted)
    await chat.ask("And now?")


async def plan(chat: Chat) -> None:
    await chat.ask("Please do this: say what the weather is in Paris; say what time it is in Oslo.")
    await chat.ask("And now?")


PLAN = {
    "mode": "PLAN_EXECUTE",
    "planExecute": {
        "plan": {"systemPrompt": "You plan.", "deepThinking": True},
        "execute": {"systemPrompt": "You work on {{task_id}}."},
        "summary": {"systemPrompt": "You sum up."},
    },
}
THOUGHT: Step = {"reasoning": "I look it up."}
CONVERSATIONS: dict[str, Conversation] = {
    "plain_question": Conversation(ask_once, [FINE], {"mode": "ONESHOT", "plain": {"systemPrompt": "Answer."}}),
    "second_question": Conversation(ask_twice, [FINE]),
    "tool": Conversation(ask_once, look(THOUGHT, PARIS)),
    "tool_after_words": Conversation(ask_once, look({"content": "I look. "}, PARIS)),
    "question_after_a_tool": Conversation(ask_twice, look(THOUGHT, PARIS)),
    "parallel_calls": Conversation(
        ask_twice,
        look(PARIS, call("city_datetime", {"city": "Oslo"}, 2, 1)),
        {"react": {"systemPrompt": "Answer.", "parallelToolCalls": True}},
    ),
    "three_steps": Conversation(
        ask_twice,
        [
            {"match": {"turn": turn}, "steps": [{"reasoning": f"Thought {turn}."}, look_at(city, turn)]}
            for turn, city in enumerate(("Paris", "Oslo", "Rome"), 1)
        ]
        + [FINE],
    ),
    "small_file": Conversation(ask_with_a_small_file, [FINE]),
    "picture": Conversation(ask_with_a_picture, [FINE]),
    "after_a_compaction": Conversation(
        ask_after_a_compaction,
        [
            {"match": {"text": "about to be compacted"}, "steps": [{"content": write_summary("Much was said.")}]},
            {"match": {"text": "weather", "turn": 1}, "steps": [PARIS]},
            FINE,
        ],
    ),
    "plan": Conversation(plan, agent=PLAN),
    "steer": Conversation(steer_a_run, [{"match": {"text": "Wait", "turn": 1}, "steps": [SHORT]}, FINE]),
    "cancelled_tool": Conversation(cancel_a_tool, [{"match": {"text": "Wait", "turn": 1}, "steps": [LONG]}, FINE]),
    "failed_run": Conversation(
        ask_after_a_failure, [{"match": {"text": r"^Fail[^\n]*$"}, "steps": [{"status": 400}]}, FINE], is_failure=True
    ),
    "structured_output": Conversation(
        ask_for_json,
        [{"match": {"text": "Which city"}, "steps": [{"content": '{"city": "Paris", "people": 2102650}'}]}, FINE],
    ),
    "odd_tool_name": Conversation(ask_twice, look(call("browser.tabs.open", {}))),
}


def name_agent(provider: str, conversation: str) -> str:
    return f"{provider}-{conversation}".replace("_", "-")


def list_capabilities(provider: str) -> list[str]:
    return [name for name in CAPABILITIES if provider != "mistral" or name != "reasoning"]


def make_rules() -> list[dict[str, Any]]:
    """Return the simulator's script: each conversation's rules, only for its models."""
    return [
        rule | {"match": rule.get("match", {}) | {"model": name_agent(provider, name)}}
        for provider in PROVIDERS
        for name, conversation in CONVERSATIONS.items()
        for rule in conversation.rules
    ]


def write_config(folder: Path, base_url: str) -> None:
    (folder / "agents").mkdir(parents=True)
    providers: list[dict[str, Any]] = []
    for provider, settings in PROVIDERS.items():
        models = [
            {"name": name_agent(provider, name), "capabilities": list_capabilities(provider)} for name in CONVERSATIONS
        ]
        entry: dict[str, Any] = {"key": provider, "protocol": "openai", "baseUrl": base_url, "models": models}
        providers.append(entry | settings | {"retry": {"maxAttempts": 1}})
        for name, conversation in CONVERSATIONS.items():
            agent = name_agent(provider, name)
            plain: dict[str, Any] = {"mode": "REACT", "react": {"systemPrompt": "Answer."}}
            model: dict[str, Any] = {"providerKey": provider, "model": agent}
            if "reasoning" in list_capabilities(provider):
                model["reasoning"] = {"enabled": True}
            defined = plain | {"toolConfig": {"backends": TOOLS}} | conversation.agent | {"modelConfig": model}
            (folder / "agents" / f"{agent}.json").write_text(json.dumps(defined))
    (folder / "providers.json").write_text(json.dumps({"providers": providers}))


class Capture:
    """The suite in front of the providers, and the requests of the conversations so far."""

    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self._requests: dict[tuple[str, str], list[dict[str, Any]]] = {}

    async def get_requests(self, provider: str, name: str) -> list[dict[str, Any]]:
        """Return the bodies of a conversation's requests, oldest first; the conversation runs once."""
        if (provider, name) not in self._requests:
            agent = name_agent(provider, name)
            await CONVERSATIONS[name].play(Chat(self._suite, agent))
            await self._suite.simulator.until_idle()
            requests = self._suite.simulator.requests
            # Some protocols name the model in the path.
            own = [request for request in requests if f"{request.path}:{request.body.get('model')}:".find(agent) >= 0]
            refused = [request.body for request in own if request.status == 400]
            assert len(refused) == (1 if CONVERSATIONS[name].is_failure else 0), refused
            self._requests[provider, name] = [request.body for request in own]
        return self._requests[provider, name]


@asynccontextmanager
async def capturing(folder: Path) -> AsyncGenerator[Capture]:
    """Serve the suite inside the block."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with simulator(make_rules()) as sim:
        write_config(folder / "config", sim.base_url)
        options = ("--config-dir", str(folder / "config"), "--data-dir", str(folder / "data"))
        async with up(*options, HEADRACE_DRAIN_S="0.2") as running, aiohttp.ClientSession(timeout=timeout) as http:
            yield Capture(
                Suite(
                    running.url,
                    running.grpc,
                    running.memory,
                    folder / "config",
                    folder / "data",
                    sim,
                    http,
                    running.process,
                )
            )
