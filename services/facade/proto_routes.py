"""The route table, read from the protos' google.api.http annotations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.api import http_pb2
from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from headrace.contract import RPCS, Rpc
from headrace.v1 import agent_pb2, data_pb2, schedule_pb2, tools_pb2

EVENT_TYPE: Descriptor = agent_pb2.AgentDelta.DESCRIPTOR


@dataclass(frozen=True, slots=True)
class Route:
    """One HTTP method and path with the RPC it calls."""

    verb: str
    path: str
    """The annotated path, with parameters as {field}."""

    peer: str
    """The service that handles the RPC."""

    rpc: MethodDescriptor

    has_body: bool
    """Whether the request is the JSON body; else it is the query parameters."""

    response_body: str
    """The response field that becomes `data`; empty for the whole response."""

    @property
    def grpc_path(self) -> str:
        return f"/{self.rpc.containing_service.full_name}/{self.rpc.name}"

    @property
    def serializers(self) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
        kinds = self.rpc.input_type, self.rpc.output_type
        return GetMessageClass(kinds[0]).SerializeToString, GetMessageClass(kinds[1]).FromString

    @property
    def is_upload(self) -> bool:
        return self.rpc.input_type is tools_pb2.UploadFileRequest.DESCRIPTOR

    @property
    def is_hook(self) -> bool:
        """Whether the body is passed on as it is, proven by a signature in the headers instead of a credential."""
        return self.rpc.input_type is schedule_pb2.ReceiveWebhookRequest.DESCRIPTOR

    @property
    def has_parameters(self) -> bool:
        """Whether the request is the query parameters, and there is no body."""
        return not (self.has_body or self.is_upload or self.is_hook)

    @property
    def is_file(self) -> bool:
        return self.rpc.output_type is tools_pb2.ReadFileResponse.DESCRIPTOR

    @property
    def is_archive(self) -> bool:
        """Whether the answer is the bytes of a file that is made while it is sent."""
        return self.rpc.output_type is data_pb2.ExportDataResponse.DESCRIPTOR

    @property
    def is_stream_of_events(self) -> bool:
        return self.rpc.server_streaming and not self.rpc.client_streaming and self.rpc.output_type is EVENT_TYPE

    @property
    def is_watch(self) -> bool:
        """Whether the answer is a stream of messages that are no events of a run."""
        is_stream = self.rpc.server_streaming and not self.rpc.client_streaming
        return is_stream and not (self.is_file or self.is_archive or self.is_stream_of_events)

    @property
    def is_unary(self) -> bool:
        """Whether request and answer are one message each, as JSON."""
        return not (self.rpc.server_streaming or self.rpc.client_streaming or self.is_hook)


def load_routes() -> list[Route]:
    return [
        _make_route(rpc, binding)
        for rpc in RPCS.values()
        if rpc.http is not None
        for binding in (rpc.http, *rpc.http.additional_bindings)
    ]


def _make_route(rpc: Rpc, rule: http_pb2.HttpRule) -> Route:
    verb = rule.WhichOneof("pattern")
    assert verb in ("get", "put", "post", "delete", "patch"), f"{rpc.name}: no pattern that the facade serves"
    route = Route(
        verb=verb.upper(),
        path=getattr(rule, verb),
        peer=rpc.server,
        rpc=rpc.descriptor,
        has_body=rule.body == "*",
        response_body=rule.response_body,
    )
    assert rule.body in ("", "*") or route.is_hook, f"{rpc.name}: the body is the whole request or nothing"
    return route
