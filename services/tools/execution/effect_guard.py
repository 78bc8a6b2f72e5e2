"""A call that changes something runs with a record of it (effects.py), and never twice blindly.

| record | once | idempotent |
|---|---|---|
| none | runs | runs |
| started, by a process that has gone or a call that was left | refused: its outcome is unknown | runs again |
| ended | answered with the recorded result | the same |

A call that is still running in this process is refused, to be asked again. Reading tools, and calls without an effect
key, leave no record.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

import structlog

from headrace.errors import InvalidRequest, Overloaded
from headrace.v1 import tools_pb2
from services.tools.execution.effect_records import Effects, Outcome, Record, message
from services.tools.execution.long_results import finished
from services.tools.toolkit.tool import Call, Tool, result

log = structlog.get_logger()

UNKNOWN = {
    "ok": False,
    "error": "unknown",
    "message": "this call was started before and nobody saw its end: its effect may have taken place or not, so it "
    "was not run again; look before you repeat it",
}
"""For the model."""


async def perform(effects: Effects, tool: Tool, call: Call) -> AsyncGenerator[tools_pb2.ToolDelta]:
    """Run the tool unless its record forbids it; exactly one result, last.

    Raises:
        Overloaded: The same call is running, or the record could not be written and nothing ran.
        InvalidRequest: The effect key is that of another tool's call.
    """
    if tool.effect == "read" or tool.kind != "backend" or not call.request.effect_key:
        async with aclosing(finished(tool, call)) as deltas:
            async for delta in deltas:
                yield delta
        return
    with effects.running(f"{call.chat_id}/{call.request.effect_key}"):
        async with aclosing(_recorded(effects, tool, call)) as deltas:
            async for delta in deltas:
                yield delta


async def check(effects: Effects, request: tools_pb2.CheckEffectRequest) -> tools_pb2.CheckEffectResponse:
    """What the record says; a call that is still running counts as unknown."""
    record = await asyncio.to_thread(effects.find, request.chat_id, request.effect_key)
    if record is None:
        return tools_pb2.CheckEffectResponse(state="not_done")
    _same_tool(record, request.tool_name)
    if record.outcome is None:
        return tools_pb2.CheckEffectResponse(state="unknown")
    return tools_pb2.CheckEffectResponse(state="done", result=message(record.outcome))


async def _recorded(effects: Effects, tool: Tool, call: Call) -> AsyncGenerator[tools_pb2.ToolDelta]:
    key = call.request.effect_key
    before = await asyncio.to_thread(effects.start, call.chat_id, key, tool.name)
    if before is not None:
        _same_tool(before, tool.name)
        if before.outcome is not None:
            yield tools_pb2.ToolDelta(result=message(before.outcome))
            return
        if tool.effect == "once":
            log.warning("outcome unknown", tool=tool.name, chat_id=call.chat_id)
            yield result(json.dumps(UNKNOWN), ok=False)
            return
    may_be_forgotten = before is None
    try:
        async with aclosing(finished(tool, call)) as deltas:
            async for delta in deltas:
                may_be_forgotten = False
                if delta.HasField("result"):
                    await _end(effects, call, Record(key, tool.name), delta.result)
                yield delta
    except Overloaded:  # it has not begun (tool.py); what an earlier try may have done stays unknown
        if may_be_forgotten:
            await asyncio.to_thread(effects.forget, call.chat_id, key)
        raise


async def _end(effects: Effects, call: Call, record: Record, outcome: tools_pb2.ToolOutcome) -> None:
    """Record the outcome. Where the disk refuses, the outcome is told all the same: it is true, and the record, which
    stays `started`, only keeps the call from being repeated."""
    try:
        await asyncio.to_thread(effects.end, call.chat_id, record, Outcome(outcome.ok, outcome.result))
    except Overloaded as error:
        log.error("outcome not recorded", tool=record.tool, chat_id=call.chat_id, problem=error.message)


def _same_tool(record: Record, tool: str) -> None:
    if record.tool.casefold() != tool.casefold():
        raise InvalidRequest.of("effectKey", "names a call of another tool")
