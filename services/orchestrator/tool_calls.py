"""Executing the calls of one answer: output streamed as it comes, each result committed when its tool ends.

A tool that fails is a value for the model. A call that is not run gets a result that says so and why.
"""

from __future__ import annotations

import asyncio
import hashlib

import grpc
import orjson

from headrace.errors import HeadraceError
from headrace.streams import reading
from headrace.v1 import tools_pb2
from services.orchestrator.answer import Call
from services.orchestrator.peers import Peers
from services.orchestrator.scope import Scope
from services.runtime.ids import forwarded

RPC_SLACK_S = 5.0
"""The tools service ends a tool at its timeout by itself; this much later we stop waiting for it."""


async def execute_all(scope: Scope, peers: Peers, calls: list[Call], warning: str = "") -> None:
    """Run `calls` together. The first error that is no tool's own cancels the others and comes out bare."""
    if len(calls) == 1:
        await _execute(scope, peers, calls[0], warning)
        return
    try:
        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(_execute(scope, peers, call, warning))
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors


async def refuse(scope: Scope, call: Call, why: str) -> None:
    """Answer a call that is not run."""
    text = orjson.dumps({"ok": False, "executed": False, "error": why}).decode()
    await scope.commit([scope.result(call, text, ok=False)])


async def _execute(scope: Scope, peers: Peers, call: Call, warning: str) -> None:
    outcome = tools_pb2.ToolOutcome(result=_failed("NO_RESULT", "the tool ended without a result"))
    try:
        await _stream(scope, peers, call, outcome)
    except HeadraceError as error:
        outcome.result = _failed(error.reason, error.message)
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
            raise
        outcome.result = _failed("TIMEOUT", "the tool did not end in time")
    text = f"{outcome.result}\n\n[{warning}]" if warning else outcome.result
    await scope.commit([scope.result(call, text, outcome.ok)])


async def _stream(scope: Scope, peers: Peers, call: Call, outcome: tools_pb2.ToolOutcome) -> None:
    run = scope.run
    timeout_s = min(run.spending.tool_timeout_ms / 1000, run.spending.time_left_s)
    request = tools_pb2.ExecuteRequest(
        run_id=run.id,
        tool_call_id=call.tool_id,
        tool_name=call.name,
        arguments=call.arguments,
        effect_key=_effect_key(run.id, call),
        chat_id=run.chat_id,
        timeout_ms=round(timeout_s * 1000),
    )
    rpc = peers.tools.Execute(request, timeout=timeout_s + RPC_SLACK_S, metadata=forwarded())
    async with reading(rpc) as deltas:
        async for delta in deltas:
            kind = delta.WhichOneof("delta")
            if kind == "output":
                output = delta.output
                scope.publish("tool_output", tool_id=call.tool_id, stream=output.stream, delta=output.delta)
            elif kind == "result":
                outcome.CopyFrom(delta.result)


def _effect_key(run_id: str, call: Call) -> str:
    """Names the effect of a call: the run, the call and the hash of its canonical arguments."""
    try:
        canonical = orjson.dumps(orjson.loads(call.arguments), option=orjson.OPT_SORT_KEYS)
    except ValueError:
        canonical = call.arguments.encode()
    return f"{run_id}/{call.tool_id}/{hashlib.sha256(canonical).hexdigest()[:32]}"


def _failed(reason: str, message: str) -> str:
    return orjson.dumps({"ok": False, "error": reason, "message": message}).decode()
