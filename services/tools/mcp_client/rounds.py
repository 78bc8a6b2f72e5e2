"""A call of 2026-07-28: as long as the server responds with questions, the call is sent again with the answers.

Nothing is held in memory while a person is asked: the server's state is in the call's record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import mcp_types as types
import msgspec
from mcp import Client, MCPError
from pydantic import TypeAdapter

from headrace.v1 import common_pb2, tools_pb2
from services.tools.errors import InputNeeded, ToolFailed
from services.tools.mcp_client.questions import NO_PERSON, list_roots, make_need, make_response
from services.tools.mcp_client.settings import Server

ROUNDS_MAX = 32
"""Maximum responses with questions to one call, over all its attempts."""

RESUME_STATE_CHARS_MAX = 1_000_000
"""Maximum size of the server's state and the model's answers, which are stored while a person is asked."""

BACKOFF_S, BACKOFF_S_MAX = 0.05, 1.0
"""Delay before the call is sent again if the server requests only that."""

T = TypeVar("T")

_RESPONSES: TypeAdapter[dict[str, types.InputResponse]] = TypeAdapter(dict[str, types.InputResponse])

Sample = Callable[[types.CreateMessageRequestParams], Awaitable[types.CreateMessageResult | types.ErrorData]]


class ResumeState(msgspec.Struct):
    """Progress of a call that waits for a person."""

    rounds: int = 0
    state: str | None = None
    """The server's state, returned to it unchanged."""
    keys: dict[str, str] = {}
    """The server's names of the questions, by ours."""
    responses: dict[str, Any] = {}
    """Answers to its other questions of the same round, by the server's names."""


class Rounds:
    def __init__(self, server: str, granted: Server, kept: str, request: tools_pb2.ExecuteRequest) -> None:
        """`kept` is the state stored when the call last asked a person; empty on the first attempt."""
        self._server = server
        self._granted = granted
        self._can_ask = granted.elicitation and bool(request.effect_key)
        self._answers = {answer.name: answer for answer in request.answers}
        self._resume_state = msgspec.json.decode(kept, type=ResumeState) if kept else ResumeState()

    async def call(
        self, client: Client, tool: str, arguments: dict[str, Any], sample: Sample, progress: Any
    ) -> types.CallToolResult:
        """Return the result. Raises InputNeeded if a person must answer first, MCPError if the server's question is
        refused."""
        delay_s = BACKOFF_S
        responses: types.InputResponses | None = None
        if self._resume_state.keys:
            answers = {key: make_response(self._answers[name]) for name, key in self._resume_state.keys.items()}
            responses = {**_RESPONSES.validate_python(self._resume_state.responses), **answers}
        while True:
            answer = await client.session.call_tool(
                *(tool, arguments),
                progress_callback=progress,
                input_responses=responses,
                request_state=self._resume_state.state,
                allow_input_required=True,
            )
            if isinstance(answer, types.CallToolResult):
                return answer
            self._resume_state = ResumeState(self._resume_state.rounds + 1, answer.request_state)
            if self._resume_state.rounds > ROUNDS_MAX:
                raise ToolFailed(f"its server has asked {ROUNDS_MAX} times, and asks again")
            responses = await self._respond(answer.input_requests or {}, sample)
            if not responses:
                responses = None
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, BACKOFF_S_MAX)

    async def _respond(self, requests: types.InputRequests, sample: Sample) -> types.InputResponses:
        responses: types.InputResponses = {}
        needs: list[common_pb2.InputNeed] = []
        for index, (key, request) in enumerate(requests.items()):
            match request:
                case types.CreateMessageRequest(params=params):
                    responses[key] = _accept(await sample(params))
                case types.ListRootsRequest():
                    responses[key] = _accept(await list_roots(self._granted.roots))
                case types.ElicitRequest(params=params):
                    if not self._can_ask:
                        raise MCPError.from_error_data(NO_PERSON)
                    need = _accept(make_need(self._server, f"{self._resume_state.rounds}-{index}", params))
                    self._resume_state.keys[need.name] = key
                    needs.append(need)
        if needs:
            self._resume_state.responses = _RESPONSES.dump_python(responses, mode="json", by_alias=True)
            resume_state = msgspec.json.encode(self._resume_state).decode()
            if len(resume_state) > RESUME_STATE_CHARS_MAX:
                raise ToolFailed(f"its server wants back more than {RESUME_STATE_CHARS_MAX:,} characters")
            raise InputNeeded(needs, resume_state)
        return responses


def _accept(found: T | types.ErrorData) -> T:
    if isinstance(found, types.ErrorData):
        raise MCPError.from_error_data(found)
    return found
