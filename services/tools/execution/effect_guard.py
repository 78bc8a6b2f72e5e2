"""Runs calls that change something under a record (effect_records.py), so that none is repeated blindly.

Tools that only read, and calls without an effect key, leave no record.
"""

# | record | once | idempotent |
# |---|---|---|
# | none: it has not started | runs | runs |
# | started, by a process that has gone or a call that was left | refused: its outcome is unknown | runs again |
# | started, and waits for a person | continues with the answers, or asks again | the same |
# | ended | answered with the recorded result | the same |

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

import structlog

from headrace.errors import InvalidRequest, Overloaded
from headrace.v1 import tools_pb2
from services.tools.errors import CredentialNeeded, InputNeeded
from services.tools.execution.effect_records import (
    EffectRecord,
    EffectRecords,
    Outcome,
    to_asking,
    to_message,
    to_pause,
)
from services.tools.execution.results import run_bounded
from services.tools.toolkit.tool import Tool, ToolContext, make_result

log = structlog.get_logger()

UNKNOWN = {
    "ok": False,
    "error": "unknown",
    "message": "this call was started before and nobody saw its end: its effect may have taken place or not, so it "
    "was not run again; look before you repeat it",
}


def run_guarded(effects: EffectRecords, tool: Tool, context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
    """Stream the call's output; exactly one result comes, last.

    Raises:
        Overloaded: The same call is running, or the record could not be written and nothing ran.
        InvalidRequest: The effect key belongs to another tool's call.
    """
    is_read_alone = tool.effect == "read" and not tool.may_ask
    if is_read_alone or tool.kind != "backend" or not context.request.effect_key:
        return run_bounded(tool, context)
    return _run_recorded(effects, tool, context)


async def check_effect(effects: EffectRecords, request: tools_pb2.CheckEffectRequest) -> tools_pb2.CheckEffectResponse:
    record = await asyncio.to_thread(effects.find_record, request.chat_id, request.effect_key)
    if record is None:
        is_running = effects.is_running(f"{request.chat_id}/{request.effect_key}")
        return tools_pb2.CheckEffectResponse(state="unknown" if is_running else "not_done")
    _check_tool(record, request.tool_name)
    if record.pause is not None and not effects.is_running(f"{request.chat_id}/{request.effect_key}"):
        return tools_pb2.CheckEffectResponse(state="not_done")
    if record.outcome is None:
        return tools_pb2.CheckEffectResponse(state="unknown")
    return tools_pb2.CheckEffectResponse(state="done", result=to_message(record.outcome))


class _Beginning:
    """The call's record, which is on disk before the effect may begin."""

    def __init__(self, effects: EffectRecords, tool: Tool, context: ToolContext, before: EffectRecord | None) -> None:
        self._effects = effects
        self._tool = tool
        self._context = context
        self._before = before
        self.has_begun = bool(context.resume_state)  # before it has asked a person

    async def begin(self) -> None:
        """Write the record. Raises Overloaded if that fails, or if another replica has started the call."""
        if self._before is None and not self.has_begun:
            key = self._context.request.effect_key
            if await asyncio.to_thread(self._effects.record_start, self._context.chat_id, key, self._tool.name):
                raise Overloaded("this very call is running already; ask again when it has ended")
        self.has_begun = True

    async def forget(self) -> None:
        """Delete the record of a call that did not begin after all; an earlier attempt's record is kept."""
        if self.has_begun and self._before is None:
            await asyncio.to_thread(
                self._effects.delete_record, self._context.chat_id, self._context.request.effect_key
            )


async def _run_recorded(
    effects: EffectRecords, tool: Tool, context: ToolContext
) -> AsyncGenerator[tools_pb2.ToolDelta]:
    key = context.request.effect_key
    with effects.lock_key(f"{context.chat_id}/{key}"):
        before = await asyncio.to_thread(effects.find_record, context.chat_id, key)
        if before is not None:
            _check_tool(before, tool.name)
            if before.outcome is not None:
                yield tools_pb2.ToolDelta(result=to_message(before.outcome))
                return
            if before.pause is not None:
                if {ask.name for ask in before.pause.asks} - {answer.name for answer in context.request.answers}:
                    yield to_asking(before.pause)
                    return
                await asyncio.to_thread(effects.record_pause, context.chat_id, before, None)
                context = dataclasses.replace(context, resume_state=before.pause.resume_state)
            elif tool.effect == "once":
                log.warning("outcome unknown", tool=tool.name, chat_id=context.chat_id)
                yield make_result(json.dumps(UNKNOWN), ok=False)
                return
        beginning = _Beginning(effects, tool, context, before)
        if not tool.begins_itself:
            await beginning.begin()
        is_silent = True
        try:
            async with aclosing(run_bounded(tool, dataclasses.replace(context, begin=beginning.begin))) as deltas:
                async for delta in deltas:
                    is_silent = False
                    if delta.HasField("result") and beginning.has_begun:
                        await _record_end(effects, context, EffectRecord(key, tool.name), delta.result)
                    yield delta
        except Overloaded:
            if is_silent:
                await beginning.forget()
            raise
        except InputNeeded as needed:
            pause = to_pause(needed.asks, needed.resume_state)
            await asyncio.to_thread(effects.record_pause, context.chat_id, EffectRecord(key, tool.name), pause)
            yield to_asking(pause)
        except CredentialNeeded:  # nothing has taken effect, whatever the tool has output
            await beginning.forget()
            raise


async def _record_end(
    effects: EffectRecords, context: ToolContext, record: EffectRecord, outcome: tools_pb2.ToolOutcome
) -> None:
    # A failing disk is only logged: the outcome is true, and the record that stays `started` prevents a repetition.
    try:
        await asyncio.to_thread(
            effects.record_end, context.chat_id, record, Outcome(outcome.ok, outcome.result, [*outcome.shown_paths])
        )
    except Overloaded as error:
        log.error("outcome not recorded", tool=record.tool, chat_id=context.chat_id, problem=error.message)


def _check_tool(record: EffectRecord, tool: str) -> None:
    if record.tool.casefold() != tool.casefold():
        raise InvalidRequest.of("effectKey", "names a call of another tool")
