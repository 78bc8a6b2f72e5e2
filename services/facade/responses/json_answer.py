"""Returns a run's stream as one JSON answer, for `"stream": false`.

`content` is the final text. A failed run answers with its error's status, a cancelled one with 499 CANCELLED
and its runId.
"""

from __future__ import annotations

from typing import Any

import grpc
import orjson
from aiohttp import web

from headrace.errors import Interrupted
from headrace.runs.fold import Fold
from headrace.streams import reading
from headrace.v1 import agent_pb2
from services.facade.responses import envelope
from services.runtime.formats.json_form import encode


async def answer_run(call: grpc.aio.UnaryStreamCall[Any, agent_pb2.AgentDelta]) -> web.Response:
    """Read `call` until its run ends; the call is cancelled in every case."""
    state = Fold()
    async with reading(call) as deltas:
        async for delta in deltas:
            state.apply(delta)
            if state.end is not None:
                return _build_answer(state, state.end)
    chat_id = state.chat_id if state.run_id else ""
    raise Interrupted("the run's stream ended before the run did; attach to it, or ask again", chatId=chat_id)


def _build_answer(state: Fold, end: agent_pb2.AgentDelta) -> web.Response:
    match end.WhichOneof("payload"):
        case "run_error":
            error, run_id = end.run_error.error, end.run_error.run_id
            details = orjson.loads(error.details or "{}") | {"runId": run_id}
            return envelope.wrap_run_failure(error.code, error.message, retriable=error.retriable, details=details)
        case "run_cancel":
            details = {"runId": end.run_cancel.run_id}
            return envelope.build_failure(499, "CANCELLED", "the run was cancelled", details=details)
        case _:
            complete = end.run_complete
            output = {"output": orjson.Fragment(complete.output)} if complete.HasField("output") else {}
            return envelope.wrap_data(
                {
                    "runId": complete.run_id,
                    "chatId": state.chat_id,
                    "content": state.answer,
                    "finishReason": complete.finish_reason,
                    "usage": orjson.Fragment(encode(complete.usage)),
                }
                | output
            )
