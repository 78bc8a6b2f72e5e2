"""Every event of the contract, over gRPC and both facades: the same message, and the same JSON."""

from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from headrace.runs.fold import TERMINAL
from headrace.v1 import agent_pb2, agent_pb2_grpc
from services.runtime.formats.json_form import event
from tests.support.facade.both import Both, both
from tests.support.facade.messages import fill_message
from tests.support.facade.peers import Peer

PAYLOADS = list(agent_pb2.AgentDelta.DESCRIPTOR.oneofs_by_name["payload"].fields)
ASK = b'{"message":"hi"}'


def make_deltas(*, full: bool, last: str) -> list[agent_pb2.AgentDelta]:
    """Make one event of each kind, with `last` at the end."""
    kinds = [field for field in PAYLOADS if field.name not in TERMINAL]
    kinds += [field for field in PAYLOADS if field.name == last]
    all_deltas: list[agent_pb2.AgentDelta] = []
    for seq, field in enumerate(kinds, 1):
        assert field.message_type is not None
        delta = agent_pb2.AgentDelta(seq=seq, timestamp=1_700_000_000_000 + seq)
        payload: Any = fill_message(field.message_type) if full else GetMessageClass(field.message_type)()
        getattr(delta, field.name).CopyFrom(payload)
        if full:
            delta.subagent_id, delta.task_id = "subagent-1", 'task "1"'
        all_deltas.append(delta)
    return all_deltas


async def check_same_everywhere(facades: Both, sent: list[agent_pb2.AgentDelta]) -> None:
    facades.peer.replies = sent
    async with grpc.aio.insecure_channel(facades.grpc) as channel:
        stub: Any = agent_pb2_grpc.AgentServiceStub(channel)
        received = [delta async for delta in stub.Query(agent_pb2.QueryRequest(message="hi"))]
    assert received == sent
    answer = await facades.ask("POST", "/api/query", ASK)
    *events, done = answer.events
    assert events == [encoded.json for delta in received if (encoded := event(delta))]
    assert done == b"[DONE]"


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("last", sorted(TERMINAL))
async def test_every_event_is_the_same_everywhere(tmp_path: Path, full: bool, last: str) -> None:
    async with both(tmp_path, Peer()) as facades:
        await check_same_everywhere(facades, make_deltas(full=full, last=last))


async def test_any_text_and_any_number_is_the_same_everywhere(tmp_path: Path) -> None:
    numbers = [0.0, -0.0, 0.1, 1e-5, 9.9e-6, 1e-7, 1e15, 1e16, 123456789.125, 1e22, 5e-324, 1.7976931348623157e308]
    texts = [chr(code) for code in (*range(0x100), 0x2028, 0xD7FF, 0xE000, 0xFFFD, 0xFFFE, 0xFFFF, 0x10FFFF)]
    sent = [agent_pb2.AgentDelta(seq=seq, timestamp=-seq) for seq in range(1, len(texts) + len(numbers) + 2)]
    for delta, text in zip(sent, texts, strict=False):
        delta.content_delta.content_id, delta.content_delta.delta = "c", text
    for delta, number in zip(sent[len(texts) :], [*numbers, float("nan")], strict=True):
        delta.run_complete.usage.cost_usd = number
    async with both(tmp_path, Peer()) as facades:
        await check_same_everywhere(facades, [*sent[: len(texts)], sent[-1]])
        for delta in sent[len(texts) :]:
            await check_same_everywhere(facades, [delta])
