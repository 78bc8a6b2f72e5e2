"""The cases tried with the real model. A case fails with an AssertionError or any other error."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tests.judges.models.conversations import Capture
from tests.support.order import Event, check_order, texts
from tests.support.suite import Suite
from tests.support.timing import within
from trials.real_model.server import RealServer, serving_model
from trials.real_model.templates import TEMPLATES, Template, render_all

SLOT_TOKENS = 1536
"""Window of the server; it holds the two tools that each compacted chat gets, and some messages."""

TOKENS_MAX = 64
"""Limit of most answers, because the model is not instruction-tuned and seldom stops."""

FREE_S = 5.0
"""Time in which the server must notice a disconnect; it checks between two tokens."""

CITIES = ["Paris", "Oslo"]
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": CITIES}, "days": {"type": "integer", "enum": [1, 2]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = [
    {
        "type": "function",
        "name": name,
        "description": "Get what is asked.",
        "parameters": PARAMETERS,
        "command": ["echo", f"{name} says rain"],
        "effect": "read",
    }
    for name in ("forecast", "tides")
]

CALL = '<tool_call>{"name": "%s", "arguments": {"city": "Oslo", "days": 1}}</tool_call>'

EXCHANGES_MAX = 100
"""Limit of the requests of all cases; far fewer fill a window."""


@dataclass(frozen=True)
class Stage:
    """Everything that a case may use."""

    suite: Suite
    server: RealServer
    capture: Capture


Case: TypeAlias = Callable[[Stage], Awaitable[None]]


def write_config(folder: Path, base_url: str) -> None:
    """Write agents for the model, which has several names, each with its own window and answer length."""
    sampling = {"temperature": 0, "seed": 1}
    short = {"contextWindow": SLOT_TOKENS, "maxOutput": TOKENS_MAX, "extraBody": sampling}
    models: list[dict[str, Any]] = [
        {"name": "short"} | short,
        # The configured window is larger than the server's.
        {"name": "boastful"} | short | {"contextWindow": 32_768},
        # Otherwise, the server's grammar would let the model continue with further calls.
        {"name": "calling", "unsupported": ["tool_choice_by_name"]}
        | short
        | {"extraBody": sampling | {"stop": ["</tool_call>"]}},
        {"name": "endless"} | short | {"extraBody": {"ignore_eos": True}},
    ]
    patient = {"firstDeltaMs": 600_000, "idleMs": 600_000}
    provider: dict[str, Any] = {"key": "llama", "protocol": "openai", "baseUrl": base_url, "models": models}
    provider |= {"timeouts": patient, "retry": {"maxAttempts": 1}, "reasoning": "chat_template_kwargs"}
    (folder / "agents").mkdir(parents=True)
    (folder / "tools").mkdir()
    (folder / "providers.json").write_text(json.dumps({"providers": [provider]}))
    (folder / "tools" / "towns.backend").write_text(json.dumps({"tools": TOOLS}))
    for model in ("short", "boastful", "endless"):
        asked: dict[str, Any] = {"providerKey": "llama", "model": model}
        if model != "endless":
            asked["max_tokens"] = 8 if model == "boastful" else TOKENS_MAX
        agent = {"mode": "ONESHOT", "plain": {"systemPrompt": "Answer."}, "modelConfig": asked}
        (folder / "agents" / f"{model}.json").write_text(json.dumps(agent))
    calling: dict[str, Any] = {
        "mode": "REACT",
        "react": {"systemPrompt": "Answer."},
        "toolConfig": {"backends": ["forecast", "tides"]},
    }
    calling["modelConfig"] = {"providerKey": "llama", "model": "calling", "max_tokens": TOKENS_MAX}
    calling["budget"] = {"maxModelCalls": 2}
    (folder / "agents" / "calling.json").write_text(json.dumps(calling))


async def stream_an_answer(stage: Stage) -> None:
    events = await stage.suite.ask("Say something about rivers.", "short")
    pieces = texts(events, "content")
    frames = stage.server.exchanges[-1].read_frames()
    sent = [choice["delta"].get("content") or "" for frame in frames for choice in frame["choices"]]
    assert len(pieces) > 1, pieces
    assert "".join(pieces) == "".join(sent)


async def count_as_the_server_does(stage: Stage) -> None:
    events = await stage.suite.ask("Say something about hills.", "short")
    usage = next(frame["usage"] for frame in stage.server.exchanges[-1].read_frames() if frame.get("usage"))
    reported = events[-1]["usage"]
    assert (reported["inputTokens"], reported["outputTokens"]) == (usage["prompt_tokens"], usage["completion_tokens"])


def force_a_tool(choice: str, message: str, name: str) -> Case:
    """Return a case in which the model must call a tool.

    The grammar allows any text before the tag of a call, and after it only valid calls. The question is a call
    because this model repeats its input; it therefore calls in each turn, and the second turn is its last.
    """

    async def force(stage: Stage) -> None:
        events = await stage.suite.ask(message, "calling", toolChoice=choice)
        first = next((event["toolId"] for event in events if event["type"] == "tool.start"), "")
        assert first, f"the model was not made to call: {events[-1]}"
        pieces = [event["delta"] for event in events if event["type"] == "tool.args" and event["toolId"] == first]
        assert json.loads("".join(pieces))["city"] in CITIES, pieces
        results = [event for event in events if event["type"] == "tool.result"]
        assert f"{name} says rain" in json.dumps(results[:1])
        # The server accepts the call and its result in the next request.
        last = stage.server.exchanges[-1]
        assert [said["role"] for said in last.request["messages"]][2:4] == ["assistant", "tool"]
        assert last.status == 200

    return force


async def answer_by_a_schema(stage: Stage) -> None:
    events = await stage.suite.ask("Which city?", "short", outputFormat={"schema": PARAMETERS, "strict": True})
    assert stage.server.exchanges[-1].request["response_format"]["type"] == "json_schema"
    assert json.loads("".join(texts(events, "content")))["city"] in CITIES


async def compact_when_the_window_is_full(stage: Stage) -> None:
    long = "one two three four five six seven eight nine ten " * 35
    asked: dict[str, str] = {}
    kinds: list[str] = []
    while "compaction.start" not in kinds:
        assert len(stage.server.exchanges) < EXCHANGES_MAX, kinds
        events = await stage.suite.ask(f"Repeat: {long}", "boastful", **asked)
        kinds += [event["type"] for event in events]
        asked = {"chatId": events[0]["chatId"]}
    assert 400 in [exchange.status for exchange in stage.server.exchanges], "the server has refused nothing"
    # The run with the refused request continues in the compacted chat and gets its answer.
    assert kinds[-1] == "run.complete", kinds[-5:]


async def free_the_slot_of_a_cancelled_run(stage: Stage) -> None:
    events: list[Event] = []
    async with stage.suite.query("Say something about the sea.", "endless") as running:
        async for event in running:
            events.append(event)
            if event["type"] == "content.delta" and len(texts(events, "content")) == 2:
                assert await stage.server.count_busy_slots() == 1
                status, _ = await stage.suite.post("/api/cancel", {"runId": events[2]["runId"]})
                assert status == 200
    check_order(events)
    assert events[-1]["type"] == "run.cancel"
    async with within(FREE_S):
        while await stage.server.count_busy_slots():
            await asyncio.sleep(0.05)


def render_by(template: Template) -> Case:
    async def render(stage: Stage) -> None:
        await render_all(template, stage.capture, lambda file: serving_model(SLOT_TOKENS, file))

    return render


CASES: dict[str, Case] = {
    "stream": stream_an_answer,
    "usage": count_as_the_server_does,
    "tool_call": force_a_tool("required", CALL % "forecast", "forecast"),
    "tool_call_by_name": force_a_tool("forecast", CALL % "tides", "forecast"),
    "json_schema": answer_by_a_schema,
    "overflow": compact_when_the_window_is_full,
    "cancel": free_the_slot_of_a_cancelled_run,
    **{f"template_{name}": render_by(template) for name, template in TEMPLATES.items()},
}
