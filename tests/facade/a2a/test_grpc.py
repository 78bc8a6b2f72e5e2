"""A2A over gRPC on a real server with a scripted orchestrator: what differs from the HTTP bindings."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from headrace.a2a import a2a_pb2
from headrace.errors import ChatBusy, ProviderUnavailable, from_rpc_error
from headrace.v1 import agent_pb2
from tests.support.facade.a2a import serving
from tests.support.facade.openai_api import make_run
from tests.support.facade.scripted import CHAT, RUN, Script, answering, opening

CURSOR = "urn:headrace:cursor:1"


def ask(text: str = "hi", **fields: Any) -> a2a_pb2.SendMessageRequest:
    message = a2a_pb2.Message(message_id="m", role=a2a_pb2.ROLE_USER, parts=[a2a_pb2.Part(text=text)], **fields)
    return a2a_pb2.SendMessageRequest(tenant="helper", message=message)


def read_reason(error: grpc.aio.AioRpcError) -> tuple[str, str]:
    """Return the domain and the reason of a refusal."""
    trailers = dict(error.trailing_metadata() or ())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])  # pyright: ignore[reportArgumentType]
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    return info.domain, info.reason


async def test_a_stream_has_the_task_and_then_each_delta(tmp_path: Path) -> None:
    async with serving(tmp_path, Script(query=answering("one", " two"), publish=["a2a"])) as (_, agent):
        events = [event async for event in agent.SendStreamingMessage(ask())]
    kinds = [event.WhichOneof("payload") for event in events]
    assert kinds == ["task", "artifact_update", "artifact_update", "status_update"]
    assert [event.artifact_update.artifact.parts[0].text for event in events[1:3]] == ["one", " two"]
    assert [event.artifact_update.append for event in events[1:3]] == [False, True]
    assert events[0].task.context_id == CHAT
    assert events[-1].status_update.status.state == a2a_pb2.TASK_STATE_COMPLETED
    assert not events[1].artifact_update.HasField("metadata")


async def test_a_subscriber_that_requests_cursors_can_resume_after_one(tmp_path: Path) -> None:
    script = Script(publish=["a2a"], run=make_run("running"), attaches=[answering("one", " two")])
    async with serving(tmp_path, script) as (_, agent):
        request = a2a_pb2.SubscribeToTaskRequest(tenant="helper", id=RUN)
        wanted = ("a2a-extensions", f"urn:other:1, {CURSOR}")
        whole = [event async for event in agent.SubscribeToTask(request, metadata=[wanted])]
        cursors = [getattr(event, event.WhichOneof("payload")).metadata[CURSOR] for event in whole]
        assert cursors == sorted(cursors)
        resuming = [wanted, ("last-event-id", cursors[1])]
        later_events = [event async for event in agent.SubscribeToTask(request, metadata=resuming)]
    # The reader had only a part of the artifact, so the artifact starts again.
    assert (later_events[1].artifact_update.artifact.parts[0].text, later_events[1].artifact_update.append) == (
        "one two",
        False,
    )
    assert len(later_events) == len(whole) - 1


@pytest.mark.parametrize(
    ("method", "request_", "reason"),
    [
        ("GetTask", a2a_pb2.GetTaskRequest(tenant="helper", id="x"), "TASK_NOT_FOUND"),
        ("GetTask", a2a_pb2.GetTaskRequest(tenant="nobody", id=RUN), "TASK_NOT_FOUND"),
        ("SendMessage", ask(context_id="x"), "INVALID_PARAMS"),
        ("ListTasks", a2a_pb2.ListTasksRequest(tenant="helper", page_size=1000), "INVALID_PARAMS"),
        (
            "GetExtendedAgentCard",
            a2a_pb2.GetExtendedAgentCardRequest(tenant="helper"),
            "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
        ),
    ],
)
async def test_an_invalid_request_gets_the_protocols_own_error_reason(
    tmp_path: Path, method: str, request_: Any, reason: str
) -> None:
    async with serving(tmp_path, Script(query=answering("x"), publish=["a2a"])) as (facade, agent):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await getattr(agent, method)(request_)
        assert read_reason(caught.value) == ("a2a-protocol.org", reason)
        assert not [request for request in facade.script.requests if isinstance(request, agent_pb2.QueryRequest)]


async def test_an_error_unknown_to_the_protocol_keeps_our_error_class(tmp_path: Path) -> None:
    async with serving(tmp_path, Script(query=[ChatBusy("busy")], publish=["a2a"])) as (facade, agent):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await agent.SendMessage(ask())
        assert isinstance(from_rpc_error(caught.value), ChatBusy)
        facade.script.query = [*opening(), ProviderUnavailable("gone")]
        stream = agent.SendStreamingMessage(ask())
        assert (await stream.read()).WhichOneof("payload") == "task"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
        assert isinstance(from_rpc_error(caught.value), ProviderUnavailable)


async def test_another_version_or_an_unpublished_agent_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, Script(query=answering("x"), publish=["a2a"])) as (facade, agent):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await agent.SendMessage(ask(), metadata=[("a2a-version", "0.3")])
        assert read_reason(caught.value)[1] == "VERSION_NOT_SUPPORTED"
        facade.script.publish = ["mcp"]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await agent.SendStreamingMessage(ask()).read()
        assert read_reason(caught.value)[1] == "TASK_NOT_FOUND"
        assert not [request for request in facade.script.requests if isinstance(request, agent_pb2.QueryRequest)]


async def test_a_request_without_a_tenant_goes_to_the_only_agent(tmp_path: Path) -> None:
    async with serving(tmp_path, Script(query=answering("x"), publish=["a2a"])) as (_, agent):
        request = a2a_pb2.SendMessageRequest(message=ask().message)
        assert (await agent.SendMessage(request)).task.artifacts[0].parts[0].text == "x"


async def test_a_disconnecting_reader_does_not_cancel_the_task(tmp_path: Path) -> None:
    async with serving(tmp_path, Script(query=[*opening(), 3600.0], publish=["a2a"])) as (facade, agent):
        stream = agent.SendStreamingMessage(ask())
        assert (await stream.read()).WhichOneof("payload") == "task"
        stream.cancel()
        await facade.script.closed.wait()
        assert not facade.script.cancelled.is_set()


OURS = """
from headrace.a2a import a2a_pb2
assert a2a_pb2.Message(message_id="m").SerializeToString() == b"\\n\\x01m"
"""
THEIRS = """
from google.protobuf import empty_pb2, struct_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import Default
file = FileDescriptorProto(name="a2a.proto", package="lf.a2a.v1")
file.message_type.add(name="Message").field.add(name="other", number=1, label=1, type=9)
Default().AddSerializedFile(file.SerializeToString())
"""


@pytest.mark.parametrize("order", [(OURS, THEIRS), (THEIRS, OURS)])
def test_one_process_can_import_both_packages_in_either_order(order: tuple[str, str]) -> None:
    subprocess.run([sys.executable, "-c", "".join(order)], check=True, timeout=100)
