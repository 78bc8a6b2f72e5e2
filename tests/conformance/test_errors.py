"""Every error of the suite, before and after the first event, over gRPC and both facades."""

from pathlib import Path
from typing import Any

import grpc
import pytest

from headrace.errors import BY_REASON, CredentialEnded, HeadraceError, to_failure
from headrace.streams import reading
from headrace.v1 import agent_pb2, agent_pb2_grpc
from services.facade.responses.envelope import HTTP_STATUS
from tests.support.facade.both import Both, both
from tests.support.facade.messages import UUID
from tests.support.facade.peers import Peer

ASK, ASK_ONCE = b'{"message":"hi"}', b'{"message":"hi","stream":false}'
FIRST = agent_pb2.AgentDelta(seq=1, run_start=agent_pb2.RunStart(run_id=UUID, chat_id=UUID, agent_key="a"))


def make_error(cls: type[HeadraceError]) -> HeadraceError:
    return cls("it is so: 水 'x'", retry_after_s=1.2, runId=UUID, currentTokens=9000)


async def _as_json(facades: Both, cls: type[HeadraceError], verb: str, path: str, body: bytes | None) -> None:
    facades.peer.replies = [make_error(cls)]
    answer = await facades.ask(verb, path, body)
    status = HTTP_STATUS[cls.code]
    assert (answer.status, answer.headers["retry-after"]) == (status, "2")
    error = {"code": cls.reason, "retriable": cls.retriable, "details": {"runId": UUID, "currentTokens": "9000"}}
    assert answer.json == {"code": status, "msg": "it is so: 水 'x'", "data": {}, "error": error}


async def read_into(call: Any, received: list[agent_pb2.AgentDelta]) -> None:
    async with reading(call) as deltas:
        async for delta in deltas:
            received.append(delta)


async def test_an_error_before_the_first_event_is_a_json_response_with_its_status(tmp_path: Path) -> None:
    async with both(tmp_path, Peer()) as facades:
        for cls in BY_REASON.values():
            await _as_json(facades, cls, "GET", f"/api/run?runId={UUID}", None)
            await _as_json(facades, cls, "POST", "/api/query", ASK)
            await _as_json(facades, cls, "POST", "/api/query", ASK_ONCE)
            await _as_json(facades, cls, "GET", f"/api/attach?runId={UUID}", None)
            await _as_json(facades, cls, "GET", f"/api/resource?chatId={UUID}&path=a", None)


async def test_an_error_after_the_first_event_ends_the_stream_without_done(tmp_path: Path) -> None:
    async with both(tmp_path, Peer()) as facades:
        for cls in BY_REASON.values():
            facades.peer.replies = [FIRST, make_error(cls)]
            answer = await facades.ask("POST", "/api/query", ASK)
            has_error_frame = cls is CredentialEnded  # it has a last frame, as the run may continue
            assert (answer.status, len(answer.events)) == (200, 1 + has_error_frame)


async def test_a_failed_run_is_an_error_response_to_a_caller_without_streaming(tmp_path: Path) -> None:
    async with both(tmp_path, Peer()) as facades:
        for cls in BY_REASON.values():
            end = agent_pb2.RunError(run_id=UUID, error=to_failure(make_error(cls)))
            facades.peer.replies = [FIRST, agent_pb2.AgentDelta(seq=2, run_error=end)]
            answer = await facades.ask("POST", "/api/query", ASK_ONCE)
            assert (answer.status, answer.json["error"]["code"]) == (HTTP_STATUS[cls.code], cls.reason)
            assert answer.json["error"]["details"] == {"runId": UUID, "currentTokens": "9000"}
            assert answer.json["error"]["retriable"] == cls.retriable


async def test_an_unknown_reason_is_500(tmp_path: Path) -> None:
    end = agent_pb2.RunError(run_id=UUID)
    end.error.code, end.error.message = "NEWER", "it is so"
    async with both(tmp_path, Peer([FIRST, agent_pb2.AgentDelta(seq=2, run_error=end)])) as facades:
        answer = await facades.ask("POST", "/api/query", ASK_ONCE)
    assert (answer.status, answer.json["error"]["code"]) == (500, "NEWER")


async def test_over_grpc_each_error_is_raised_as_its_class(tmp_path: Path) -> None:
    async with both(tmp_path, Peer()) as facades, grpc.aio.insecure_channel(facades.grpc) as channel:
        stub: Any = agent_pb2_grpc.AgentServiceStub(channel)
        for cls in BY_REASON.values():
            facades.peer.replies = [FIRST, make_error(cls)]
            received: list[agent_pb2.AgentDelta] = []
            with pytest.raises(cls) as caught:
                await read_into(stub.Query(agent_pb2.QueryRequest(message="hi")), received)
            assert received == [FIRST]
            assert caught.value.metadata == {"runId": UUID, "currentTokens": "9000"}
            assert caught.value.retry_after_s == 1.2


async def test_a_bug_in_the_service_is_500_without_its_text(tmp_path: Path) -> None:
    async with both(tmp_path, Peer([KeyError("secret")])) as facades:
        for body in (ASK, ASK_ONCE):
            answer = await facades.ask("POST", "/api/query", body)
            assert (answer.status, answer.json["error"]["code"]) == (500, "INTERNAL")
            assert b"secret" not in answer.body
