"""The model and the tools of a simulated world: what they answer follows from the request and the seed."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import grpc

from headrace.errors import BadFrame, Overloaded
from headrace.v1 import llm_pb2, llm_pb2_grpc, tools_pb2, tools_pb2_grpc
from tests.simulation.plan import GATEWAY, TOOLS
from tests.summaries import write_summary

if TYPE_CHECKING:
    from tests.simulation.story import Story

TURNS_WITH_CALLS_MAX = 3
"""Turns of a run in which its model asks for tools; then it answers."""

EFFECTS = {"look": "read", "set": "idempotent", "pay": "once"}
"""The tools, and what it means to run each twice."""

ONCE = "pay"
"""The tool that must not run twice."""

SUBAGENT = "call_subagent"

BEGUN = ""
"""State of an effect that has begun and not ended."""

WORDS = ("alder", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine", "rowan", "yew")


@dataclass
class Outside:
    """What is beyond the services and outlives them: effects that tools have had, and what models were asked."""

    random: Random
    story: Story
    effects: Counter[str] = field(default_factory=Counter[str])
    """How often each effect was had, by effect key."""
    once: Counter[str] = field(default_factory=Counter[str])
    """How often each effect of a `once` tool was had."""
    begun: dict[str, str] = field(default_factory=dict[str, str])
    """Result of each effect of a `once` tool that has begun, BEGUN before it has ended."""
    problems: list[str] = field(default_factory=list[str])
    model_fault: float = 0.0
    """Chance that a model call fails."""
    tool_fault: float = 0.0
    delay_s: tuple[float, float] = (0.001, 0.3)
    """Between two deltas."""
    requests: int = 0
    forgets_effects: bool = False
    """Whether tools keep no record of their effects: a planted bug."""

    def check_request(self, request: llm_pb2.ChatRequest) -> None:
        """Note what no provider would take: a call without its result, or a result without its call."""
        self.requests += 1
        waiting: list[str] = []
        for message in request.messages:
            if message.role == "tool":
                if message.tool_call_id not in waiting:
                    self.problems.append(f"a request has a result without a call: {message.tool_call_id}")
                else:
                    waiting.remove(message.tool_call_id)
                continue
            if waiting:
                self.problems.append(f"a request has calls without results: {waiting}")
            waiting = [call.id for call in message.tool_calls]
        if waiting:
            self.problems.append(f"a request ends with calls without results: {waiting}")


class Model(llm_pb2_grpc.LlmServiceServicer):
    """Stands for the gateway and its providers."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    async def ListModels(self, request: llm_pb2.ListModelsRequest, context: Any) -> llm_pb2.ListModelsResponse:
        return llm_pb2.ListModelsResponse()

    async def StreamChat(self, request: llm_pb2.ChatRequest, context: Any) -> AsyncGenerator[llm_pb2.LlmDelta]:
        outside, random = self._outside, self._outside.random
        outside.check_request(request)
        yield llm_pb2.LlmDelta(started=llm_pb2.LlmStarted(provider="scripted", model="m", attempt=1))
        deltas = _choose_answer(request, random)
        fails_at = random.randrange(len(deltas)) if random.random() < outside.model_fault else -1
        for number, delta in enumerate(deltas):
            await asyncio.sleep(random.uniform(*outside.delay_s))
            if number == fails_at:
                await self._fail(number)
            yield delta

    async def _fail(self, number: int) -> None:
        fault = self._outside.random.choice(("error", "overloaded", "stall", "cut"))
        when = "before" if number == 0 else "after"
        self._outside.story.tell(f"model    {fault} {when} its first delta", count=f"model {fault} {when} first delta")
        self._outside.story.bite("model", GATEWAY)
        match fault:
            case "error":
                raise BadFrame("the model said something unreadable")
            case "overloaded":
                raise Overloaded("the model is busy", retry_after_s=1.0)
            case "stall":
                await asyncio.sleep(self._outside.random.choice((5.0, 60.0)))
            case _:
                raise make_break()


def _choose_answer(request: llm_pb2.ChatRequest, random: Random) -> list[llm_pb2.LlmDelta]:
    if request.stage == "compact":
        return [llm_pb2.LlmDelta(content=write_summary("They spoke of trees.")), *_finish("stop")]
    deltas = [llm_pb2.LlmDelta(reasoning=f"{random.choice(WORDS)} ") for _ in range(random.choice((0, 0, 2)))]
    said = sum(1 for message in _since_question(request) if message.tool_calls)
    names = [tool.name for tool in request.tools if tool.name in EFFECTS or tool.name == SUBAGENT]
    if names and request.tool_choice != "none" and said < TURNS_WITH_CALLS_MAX and random.random() < 0.7:
        for index in range(random.choice((1, 1, 2, 3))):
            deltas += _call(index, random.choice(names), random)
        return [*deltas, *_finish("tool_calls")]
    deltas += [llm_pb2.LlmDelta(content=f"{random.choice(WORDS)} ") for _ in range(random.randint(1, 8))]
    return [*deltas, *_finish("stop")]


def _since_question(request: llm_pb2.ChatRequest) -> list[llm_pb2.Message]:
    messages = list(request.messages)
    last = max((at for at, message in enumerate(messages) if message.role == "user"), default=0)
    return messages[last:]


def _call(index: int, name: str, random: Random) -> list[llm_pb2.LlmDelta]:
    given: dict[str, object] = {"tree": random.choice(WORDS), "number": random.randrange(1000)}
    if name == SUBAGENT:
        given = {"agentKey": "react", "task": f"find a {random.choice(WORDS)}"}
    arguments = json.dumps(given)
    half = random.randrange(len(arguments))
    call_id = f"call_{random.randrange(10**9)}"
    first = llm_pb2.ToolCallDelta(index=index, id=call_id, name=name, arguments=arguments[:half])
    rest = llm_pb2.ToolCallDelta(index=index, arguments=arguments[half:])
    return [llm_pb2.LlmDelta(tool_call=first), llm_pb2.LlmDelta(tool_call=rest)]


def _finish(reason: str) -> list[llm_pb2.LlmDelta]:
    usage = llm_pb2.LlmDelta(usage={"input_tokens": 10, "output_tokens": 5, "model_calls": 1})  # pyright: ignore[reportArgumentType] - a dict is a message to protobuf
    return [usage, llm_pb2.LlmDelta(finish=llm_pb2.LlmFinish(reason=reason))]


class Tools(tools_pb2_grpc.ToolServiceServicer):
    """A tool of each kind of effect; its records, in `outside`, are kept over its deaths."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    async def ListTools(self, request: tools_pb2.ListToolsRequest, context: Any) -> tools_pb2.ListToolsResponse:
        tools = [
            tools_pb2.Tool(name=name, parameters="{}", kind="backend", effect=effect)
            for name, effect in EFFECTS.items()
            if not request.names or name in request.names
        ]
        return tools_pb2.ListToolsResponse(tools=tools)

    async def ListSkills(self, request: tools_pb2.ListSkillsRequest, context: Any) -> tools_pb2.ListSkillsResponse:
        return tools_pb2.ListSkillsResponse()

    async def ListFiles(self, request: tools_pb2.ListFilesRequest, context: Any) -> tools_pb2.ListFilesResponse:
        return tools_pb2.ListFilesResponse()

    async def CheckEffect(self, request: tools_pb2.CheckEffectRequest, context: Any) -> tools_pb2.CheckEffectResponse:
        match self._outside.begun.get(request.effect_key):
            case None:
                return tools_pb2.CheckEffectResponse(state="not_done")
            case state if state == BEGUN:
                return tools_pb2.CheckEffectResponse(state="unknown")
            case result:
                outcome = tools_pb2.ToolOutcome(ok=True, result=result)
                return tools_pb2.CheckEffectResponse(state="done", result=outcome)

    async def Execute(self, request: tools_pb2.ExecuteRequest, context: Any) -> AsyncGenerator[tools_pb2.ToolDelta]:
        outside, random = self._outside, self._outside.random
        key = request.effect_key
        if request.tool_name == ONCE:
            if (known := outside.begun.get(key)) is not None:
                # As the tools service answers what it has a record of.
                result = json.dumps({"error": "unknown"}) if known == BEGUN else known
                yield tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=known != BEGUN, result=result))
                return
            outside.begun[key] = BEGUN
        fault = random.choice(("error", "stall", "cut before", "cut after")) if _happens(outside) else ""
        if fault:
            outside.story.tell(f"tool     {request.tool_name} {fault}", count=f"tool {fault}")
            outside.story.bite("tool", TOOLS)
        yield tools_pb2.ToolDelta(output=tools_pb2.ToolOutputDelta(stream="stdout", delta="working\n"))
        await asyncio.sleep(random.uniform(*outside.delay_s))
        if fault == "stall":
            await asyncio.sleep(random.choice((5.0, 60.0)))
        if fault == "cut before":
            outside.begun.pop(key, None)
            raise make_break()
        outside.effects[key] += 1
        result = f"{request.tool_name} {outside.effects[key]}"
        if request.tool_name == ONCE:
            outside.begun[key] = result
            outside.once[key] += 1
            if outside.forgets_effects:
                del outside.begun[key]
        if fault == "cut after":
            raise make_break()
        outcome = tools_pb2.ToolOutcome(ok=fault != "error", result=result, tool_params=request.arguments)
        yield tools_pb2.ToolDelta(result=outcome)


def make_break() -> grpc.aio.AioRpcError:
    """Return the error of a connection that has ended: without details, as no service raises it."""
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, "gone")


def _happens(outside: Outside) -> bool:
    return outside.random.random() < outside.tool_fault
