"""Runs calls that change something under a record (effect_records.py), so that none is repeated blindly.

Tools that only read, and calls without an effect key, leave no record.
"""

# | record | once | idempotent |
# |---|---|---|
# | none | runs | runs |
# | started, by a process that has gone or a call that was left | refused: its outcome is unknown | runs again |
# | ended | answered with the recorded result | the same |

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

import structlog

from headrace.errors import InvalidRequest, Overloaded
from headrace.v1 import tools_pb2
from services.tools.execution.effect_records import EffectRecord, EffectRecords, Outcome, to_message
from services.tools.execution.long_results import run_bounded
from services.tools.toolkit.context import ToolContext
from services.tools.toolkit.tool import Tool, make_result

log = structlog.get_logger()

UNKNOWN = {
    "ok": False,
    "error": "unknown",
    "message": "this call was started before and nobody saw its end: its effect may have taken place or not, so it "
    "was not run again; look before you repeat it",
}


async def run_guarded(effects: EffectRecords, tool: Tool, context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
    """Streams what the call does; exactly one result comes, last.

    Raises:
        Overloaded: The same call is running, or the record could not be written and nothing ran.
        InvalidRequest: The effect key is that of another tool's call.
    """
    if tool.effect == "read" or tool.kind != "backend" or not context.request.effect_key:
        async with aclosing(run_bounded(tool, context)) as deltas:
            async for delta in deltas:
                yield delta
        return
    with effects.lock_key(f"{context.chat_id}/{context.request.effect_key}"):
        async with aclosing(_run_recorded(effects, tool, context)) as deltas:
            async for delta in deltas:
                yield delta


async def check_effect(effects: EffectRecords, request: tools_pb2.CheckEffectRequest) -> tools_pb2.CheckEffectResponse:
    record = await asyncio.to_thread(effects.find_record, request.chat_id, request.effect_key)
    if record is None:
        return tools_pb2.CheckEffectResponse(state="not_done")
    _check_tool(record, request.tool_name)
    if record.outcome is None:
        return tools_pb2.CheckEffectResponse(state="unknown")
    return tools_pb2.CheckEffectResponse(state="done", result=to_message(record.outcome))


async def _run_recorded(
    effects: EffectRecords, tool: Tool, context: ToolContext
) -> AsyncGenerator[tools_pb2.ToolDelta]:
    key = context.request.effect_key
    before = await asyncio.to_thread(effects.record_start, context.chat_id, key, tool.name)
    if before is not None:
        _check_tool(before, tool.name)
        if before.outcome is not None:
            yield tools_pb2.ToolDelta(result=to_message(before.outcome))
            return
        if tool.effect == "once":
            log.warning("outcome unknown", tool=tool.name, chat_id=context.chat_id)
            yield make_result(json.dumps(UNKNOWN), ok=False)
            return
    may_be_forgotten = before is None
    try:
        async with aclosing(run_bounded(tool, context)) as deltas:
            async for delta in deltas:
                may_be_forgotten = False
                if delta.HasField("result"):
                    await _record_end(effects, context, EffectRecord(key, tool.name), delta.result)
                yield delta
    except Overloaded:  # the tool has not begun; what an earlier attempt may have done stays unknown
        if may_be_forgotten:
            await asyncio.to_thread(effects.delete_record, context.chat_id, key)
        raise


async def _record_end(
    effects: EffectRecords, context: ToolContext, record: EffectRecord, outcome: tools_pb2.ToolOutcome
) -> None:
    # A failing disk is only logged: the outcome is true, and the record that stays `started` prevents a repetition.
    try:
        await asyncio.to_thread(effects.record_end, context.chat_id, record, Outcome(outcome.ok, outcome.result))
    except Overloaded as error:
        log.error("outcome not recorded", tool=record.tool, chat_id=context.chat_id, problem=error.message)


def _check_tool(record: EffectRecord, tool: str) -> None:
    if record.tool.casefold() != tool.casefold():
        raise InvalidRequest.of("effectKey", "names a call of another tool")
