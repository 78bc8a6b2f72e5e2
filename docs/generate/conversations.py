"""A model's view of conversations that end in unusual ways.

It is recorded from runs of the orchestrator and memory with a scripted model.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from headrace.errors import ContentFiltered, ProviderAuthentication
from headrace.v1 import agent_pb2, common_pb2, llm_pb2, tools_pb2
from services.runtime.process.transport import VARIABLE
from tests.support.jumping_loop import JumpingLoop, install_clock
from tests.support.orchestrator import plans
from tests.support.orchestrator.events import ask_for
from tests.support.orchestrator.people import Act, ask, cancels, submits
from tests.support.orchestrator.requests import assert_paired
from tests.support.orchestrator.scripted_tools import tool
from tests.support.orchestrator.steps import Step, answer, call, call_tool, content, finish, reasoning
from tests.support.orchestrator.suite import REACT, Suite, serve_suite
from tests.support.order import Event

LOST = ProviderAuthentication("no key")
"""Ends a run because it is not retried."""

PAUSE_S = 0.2
"""Time for an action to happen; the loop's clock jumps over it."""

TEXT_CHARS_MAX = 160
"""Length at which a message is shortened in the table."""

TOOLS = [
    tool("fails", "backend"),
    tool("read", "backend"),
    tool("act", "backend", approval="ask"),
    tool("confirm", "frontend", timeout_ms=100),
    tool("paint", "action", parameters='{"type":"object","required":["colour"]}'),
]
LISTED = {"backends": ["look", "slow", "fails", "read", "act"], "frontends": ["confirm"], "actions": ["paint"]}
OUTCOMES = {
    "fails": tools_pb2.ToolOutcome(result="no such city"),
    "read": tools_pb2.ToolOutcome(ok=True, result="A line of a page.\n" * 100),
}
MODEL = llm_pb2.ModelInfo(
    provider_key="scripted", model="m", capabilities=["tools", "vision"], context_window_tokens=100_000
)


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    """Description of the conversation."""
    turns: Sequence[list[Step]] | Callable[[llm_pb2.ChatRequest], list[Step]]
    """Turns of the model; the last one is repeated."""
    questions: Sequence[str] = ("One?", "Two?")
    act: tuple[str, Callable[[Suite], Act]] | None = None
    """Action at the first event of a type in the first run."""
    then: Callable[[Suite], Awaitable[Any]] | None = None
    """Action after the first run."""
    agent: dict[str, Any] = field(default_factory=dict[str, Any])
    query: dict[str, Any] = field(default_factory=dict[str, Any])
    """Fields of the first question."""


def submit(payload: Any) -> Callable[[Suite], Act]:
    return lambda suite: submits(suite, payload)


def steer(suite: Suite) -> Act:
    async def act(event: Event) -> None:
        await suite.client.steer(event["runId"], "Look left.")

    return act


def interrupt(suite: Suite) -> Act:
    async def act(event: Event) -> None:
        await ask_for(suite.client, "Two?", agent_key="react", chat_id=suite.chat_id, when_busy="interrupt")

    return act


async def revert(suite: Suite) -> None:
    await suite.client.revert(suite.chat_id, 0)


def delegate(request: llm_pb2.ChatRequest) -> list[Step]:
    """Call a sub-agent for the user's question; the sub-agent succeeds at one task and fails at the other."""
    asked = plans.text_of(next(message for message in request.messages if message.role == "user"))
    if asked == "Look for it.":
        return answer("It is under the bed.")
    if asked == "Fail at it.":
        return [*content("It is "), LOST]
    if any(message.role == "tool" for message in request.messages):
        return answer("Fine.")
    task = "Look for it." if asked == "One?" else "Fail at it."
    return call_tool("call_subagent", json.dumps({"task": task}))


FINE = answer("Fine.")
LOOK = call_tool("look", '{"at":1}')
CUT_CALL = call("look", '{"at":1}')[:1]
TWO_LOOKS = [*call("look", '{"at":1}'), *call("look", '{"at":2}', index=1, call_id="call_2"), *finish("tool_calls")]
SLOW: list[Step] = [*content("It is "), PAUSE_S, *FINE]
DRAWN = llm_pb2.LlmDelta(media=llm_pb2.LlmMedia(data=b"png", mime_type="image/png"))
READS = [call_tool("read", f'{{"page":{n}}}', call_id=f"call_{n}") for n in range(1, 9)]
RECAP = {"react": {"maxSteps": 12}, "memory": {"recap": {"enabled": True, "insightsWindowSize": 2}}}
SUBAGENTS = {"subagents": ["oneshot"]}
PICTURE = common_pb2.Reference(
    id="r1", type="image", name="a.png", mime_type="image/png", meta='{"path":"uploads/a.png"}'
)
EARLIER: list[dict[str, Any]] = [
    {"role": "user", "content": "Where am I?"},
    {"role": "assistant", "tool_calls": [{"id": "x-1", "name": "locate", "arguments": "{}"}]},
    {"role": "tool", "tool_call_id": "x-1", "content": "Lyon"},
]
EDIT = {"decision": "edit", "arguments": {"n": 2}}

ROWS = [
    Row("A question is answered", [FINE]),
    Row("The model thinks before it answers", [reasoning("hm") + FINE]),
    Row("The model answers with nothing", [finish(), FINE]),
    Row("The answer is cut at the model's limit", [content("It is") + finish("length"), FINE]),
    Row("The model makes a picture", [[*content("Here."), DRAWN, *finish()], FINE]),
    Row("A tool has run", [content("I look.") + LOOK, FINE]),
    Row("Two calls in an answer, one of which may run", [TWO_LOOKS, FINE]),
    Row("Two calls at the same time", [TWO_LOOKS, FINE], agent={"react": {"parallelToolCalls": True}}),
    Row("A tool fails", [call_tool("fails"), FINE]),
    Row("A tool does not exist", [call_tool("nobody"), FINE]),
    Row("A template has no value", [call_tool("look", '{"at":"{{look.city}}"}'), FINE]),
    Row("Arguments are no JSON", [call_tool("paint", '{"colour":'), FINE]),
    Row("An action", [call_tool("paint", '{"colour":"red"}'), FINE]),
    Row("An action's arguments do not fit", [call_tool("paint"), FINE]),
    Row("A form is filled in", [call_tool("confirm"), FINE], act=("tool.start", submit({"yes": True}))),
    Row("Nobody fills a form in", [call_tool("confirm"), FINE]),
    Row("A call is approved", [call_tool("act"), FINE], act=("approval.ask", submit({"decision": "approve"}))),
    Row(
        "A call is rejected",
        [call_tool("act"), FINE],
        act=("approval.ask", submit({"decision": "reject", "note": "Not now."})),
    ),
    Row("A call is approved with other arguments", [call_tool("act"), FINE], act=("approval.ask", submit(EDIT))),
    Row(
        "The caller carries a call out",
        [call_tool("locate"), FINE],
        act=("tool.start", submit("Lyon")),
        query={"client_tools": [agent_pb2.ClientTool(name="locate")]},
    ),
    Row("The model fails before it says anything", [[LOST], FINE]),
    Row("The model fails in its answer", [[*content("It is "), LOST], FINE]),
    Row("The model fails in a call", [[*CUT_CALL, LOST], FINE]),
    Row("The model fails after a tool has run", [LOOK, [LOST], FINE]),
    Row("The provider's filter refuses the question", [[ContentFiltered("refused")], FINE]),
    Row("The provider's filter refuses the answer", [content("It is") + finish("content_filter"), FINE]),
    Row("A run is cancelled in its answer", [SLOW, FINE], act=("content.delta", cancels)),
    Row("A run is cancelled while a tool runs", [call_tool("slow"), FINE], act=("tool.output", cancels)),
    Row("A run is cancelled while it waits for an approval", [call_tool("act"), FINE], act=("approval.ask", cancels)),
    Row("A question interrupts a run", [SLOW, FINE], ("One?",), act=("content.delta", interrupt)),
    Row("A steer while a tool runs", [LOOK, FINE], ("One?",), act=("tool.start", steer)),
    Row("A steer in the last turn", [SLOW, FINE], act=("content.delta", steer)),
    Row("The steps are used up", [LOOK, FINE], agent={"react": {"maxSteps": 1}}),
    Row("The budget is used up", [LOOK, FINE], agent={"budget": {"maxModelCalls": 1}}),
    Row("A sub-agent returns", delegate, agent=SUBAGENTS),
    Row("A sub-agent fails", delegate, ("Another?", "Two?"), agent=SUBAGENTS),
    Row("A plan of two tasks", plans.model(plans.add("a", "b")), ("One?",), agent=plans.agent()),
    Row("Recap has replaced old results", [*READS, FINE], ("One?",), agent=RECAP),
    Row("An image is uploaded", [FINE], query={"references": [PICTURE]}),
    Row("The caller brings earlier messages", [FINE], query={"history": EARLIER}),
    Row("A person reverts the chat", [FINE], then=revert),
]


@dataclass(frozen=True, slots=True)
class _Conversation:
    request: llm_pb2.ChatRequest
    """Last request to the model."""
    first_run: list[Event]


@cache
def list_conversations() -> str:
    """Return a table row for each conversation, with the messages of its last request."""
    lines = ["| conversation | messages of its last request |", "| --- | --- |"]
    for row, held in zip(ROWS, _hold_all(), strict=True):
        messages = "<br>".join(_describe(message) for message in held.request.messages if message.role != "system")
        lines.append(f"| {row.what} | {messages} |")
    return "\n".join(lines)


def hold_conversations() -> dict[str, list[Event]]:
    """Return the events of each conversation's first run, by its description."""
    return {row.what: held.first_run for row, held in zip(ROWS, _hold_all(), strict=True)}


def _hold_all() -> list[_Conversation]:
    with capture_logs(), asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(_hold_conversations())


async def _hold_conversations() -> list[_Conversation]:
    install_clock()
    os.environ[VARIABLE] = "local"
    agents = {f"row-{number}": REACT | {"toolConfig": LISTED} | row.agent for number, row in enumerate(ROWS)}
    with tempfile.TemporaryDirectory(prefix="headrace-conversations-") as name:
        async with serve_suite(Path(name), beside=agents) as suite:
            suite.llm.models = [MODEL]
            suite.tools.tools += TOOLS
            suite.tools.files["uploads/a.png"] = b"png"
            suite.tools.delay_s = PAUSE_S
            suite.tools.plays = {name: [[tools_pb2.ToolDelta(result=outcome)]] for name, outcome in OUTCOMES.items()}
            return [await _hold_conversation(suite, row, agent) for agent, row in zip(agents, ROWS, strict=True)]


async def _hold_conversation(suite: Suite, row: Row, agent: str) -> _Conversation:
    suite.chat_id = str(uuid.uuid4())
    suite.llm.requests.clear()
    suite.llm.turns, suite.llm.reply = ([], row.turns) if callable(row.turns) else ([*row.turns], None)
    first, *others = row.questions
    acts = [(row.act[0], row.act[1](suite))] if row.act else []
    first_run = await ask(suite, *acts, message=first, agent_key=agent, **row.query)
    if row.then is not None:
        await row.then(suite)
    for question in others:
        await ask(suite, message=question, agent_key=agent)
    assert_paired(suite.llm.requests[-1])
    return _Conversation(suite.llm.requests[-1], first_run)


_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{8}\b")


def _describe(message: llm_pb2.Message) -> str:
    texts = [message.reasoning_content] if message.reasoning_content else []
    texts += [part.text or f"[{part.WhichOneof('part')}]" for part in message.content]
    texts += [f"{one.name}({one.arguments}) as {one.id}" for one in message.tool_calls]
    text = " ".join(_ID.sub("#", " ".join(texts)).split())
    if len(text) > TEXT_CHARS_MAX:
        text = f"{text[: TEXT_CHARS_MAX // 2]} … {text[-TEXT_CHARS_MAX // 2 :]}"
    who = f"{message.role} {message.tool_call_id}".rstrip()
    return f"**{who}**: " + text.replace("|", "\\|").replace("<", "&lt;").replace("](", "]\\(")
