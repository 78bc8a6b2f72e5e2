"""The tools of a simulated world."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from headrace.v1 import data_pb2, tools_pb2, tools_pb2_grpc
from trials.simulation.outside.outside import ASKS, BEGUN, EFFECTS, FORM, FORM_WAITS_MS, ONCE, RULES, WORDS, make_break
from trials.simulation.plan import TOOLS

if TYPE_CHECKING:
    from trials.simulation.outside.outside import Outside


class Tools(tools_pb2_grpc.ToolServiceServicer):
    """Tools with each kind of effect; their records, in `outside`, survive restarts."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    async def ListTools(self, request: tools_pb2.ListToolsRequest, context: Any) -> tools_pb2.ListToolsResponse:
        tools = [
            tools_pb2.Tool(
                name=name,
                parameters="{}",
                kind="backend",
                effect=effect,
                approval="ask" if name == ASKS and not self._outside.asks_nobody else None,
                answerers=RULES.get(self._outside.gate_rule) if name == ASKS else None,
            )
            for name, effect in EFFECTS.items()
            if not request.names or name in request.names
        ]
        if not request.names or FORM in request.names:
            tools.append(tools_pb2.Tool(name=FORM, parameters="{}", kind="frontend", timeout_ms=FORM_WAITS_MS))
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

    async def EraseOwnedData(
        self, request: tools_pb2.EraseOwnedDataRequest, context: Any
    ) -> tools_pb2.EraseOwnedDataResponse:
        outside = self._outside
        await asyncio.sleep(outside.random.uniform(*outside.delay_s))
        if _happens(outside):
            outside.story.bite("tool", TOOLS)
            raise make_break()
        outside.cleared.add(request.user)
        return tools_pb2.EraseOwnedDataResponse(erased=[data_pb2.ErasedItem(name="workspaces", count=1)])

    async def Execute(self, request: tools_pb2.ExecuteRequest, context: Any) -> AsyncGenerator[tools_pb2.ToolDelta]:
        outside, random = self._outside, self._outside.random
        key = request.effect_key
        if request.tool_name in ONCE:
            if (known := outside.begun.get(key)) is not None:
                # Like the tools service for an effect with a record.
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
        if request.tool_name == ASKS:
            run_id, call_id = key.split("/")[:2]
            outside.ran_with.setdefault((run_id, call_id), []).append(request.arguments)
        given = json.loads(request.arguments)
        words = random.choices(WORDS, k=given.get("words", 0))
        result = " ".join((request.tool_name, str(outside.effects[key]), *words))
        if request.tool_name in ONCE:
            outside.begun[key] = result
            outside.once[key] += 1
            if outside.forgets_effects:
                del outside.begun[key]
        if fault == "cut after":
            raise make_break()
        outcome = tools_pb2.ToolOutcome(ok=fault != "error", result=result, tool_params=request.arguments)
        yield tools_pb2.ToolDelta(result=outcome)


def _happens(outside: Outside) -> bool:
    return outside.random.random() < outside.tool_fault
