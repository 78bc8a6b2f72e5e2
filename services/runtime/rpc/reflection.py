"""Server reflection: descriptions of our RPCs for generic programs, v1 and v1alpha.

grpcio-reflection has only v1alpha, finds no methods, and returns files without the fields' JSON names.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from functools import cached_property
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc_reflection.v1alpha import reflection_pb2

from headrace.a2a import POOL

ALPHA = "grpc.reflection.v1alpha.ServerReflection"
V1 = "grpc.reflection.v1.ServerReflection"

Response = reflection_pb2.ServerReflectionResponse


def add_reflection(server: Any, services: Iterable[str]) -> None:
    """Serve reflection for `services`, by full names, and for itself; both versions have the same messages."""
    names = sorted({*services, ALPHA, V1})
    responder = _Responder(names)
    method = grpc.stream_stream_rpc_method_handler(
        responder.respond,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=Response.SerializeToString,
    )
    for name in (ALPHA, V1):
        handlers = {"ServerReflectionInfo": method}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
        server.add_registered_method_handlers(name, handlers)


class _Responder:
    def __init__(self, services: list[str]) -> None:
        self._services = services

    @cached_property
    def _index(self) -> _FileIndex:
        """Built at the first request: few servers ever get one."""
        return _FileIndex(_load_files(self._services))

    async def respond(
        self, requests: AsyncIterator[reflection_pb2.ServerReflectionRequest], _: object
    ) -> AsyncIterator[Message]:
        async for request in requests:
            response = self._answer(request)
            response.valid_host = request.host
            response.original_request.CopyFrom(request)
            yield response

    def _answer(self, request: reflection_pb2.ServerReflectionRequest) -> Response:
        index = self._index
        match request.WhichOneof("message_request"):
            case "list_services":
                listed = [reflection_pb2.ServiceResponse(name=name) for name in self._services]
                return Response(list_services_response=reflection_pb2.ListServiceResponse(service=listed))
            case "file_by_filename":
                return index.describe(request.file_by_filename)
            case "file_containing_symbol":
                return index.describe(index.by_symbol.get(request.file_containing_symbol.lstrip("."), ""))
            case "file_containing_extension":
                wanted = request.file_containing_extension
                return index.describe(index.by_extension.get((wanted.containing_type, wanted.extension_number), ""))
            case "all_extension_numbers_of_type":
                name = request.all_extension_numbers_of_type
                if name not in index.by_symbol:
                    return _make_error(grpc.StatusCode.NOT_FOUND)
                numbers = [number for extended, number in index.by_extension if extended == name]
                found = reflection_pb2.ExtensionNumberResponse(base_type_name=name, extension_number=numbers)
                return Response(all_extension_numbers_response=found)
            case _:
                return _make_error(grpc.StatusCode.INVALID_ARGUMENT)


class _FileIndex:
    def __init__(self, files: Iterable[descriptor_pb2.FileDescriptorProto]) -> None:
        self._files = {file.name: file for file in files}
        self.by_symbol: dict[str, str] = {}
        """File name by the full name of each message, field, enum, service and method."""
        self.by_extension: dict[tuple[str, int], str] = {}
        """File name by extended message and number."""
        for file in self._files.values():
            self._add_file(file)

    def describe(self, name: str) -> Response:
        """Return the file and everything it needs, or NOT_FOUND."""
        if name not in self._files:
            return _make_error(grpc.StatusCode.NOT_FOUND)
        # Each file before those it depends on: loaders begin at the end.
        files = [file.SerializeToString() for file in reversed([*self._collect(name, set())])]
        return Response(file_descriptor_response=reflection_pb2.FileDescriptorResponse(file_descriptor_proto=files))

    def _collect(self, name: str, seen: set[str]) -> Iterator[descriptor_pb2.FileDescriptorProto]:
        """Yield the files that the file needs, then the file itself."""
        if name not in seen:
            seen.add(name)
            for needed in self._files[name].dependency:
                yield from self._collect(needed, seen)
            yield self._files[name]

    def _add_file(self, file: descriptor_pb2.FileDescriptorProto) -> None:
        for message in file.message_type:
            self._add_message(message, file.package, file.name)
        for enum in file.enum_type:
            self.by_symbol[f"{file.package}.{enum.name}"] = file.name
        for service in file.service:
            full_name = f"{file.package}.{service.name}"
            self.by_symbol[full_name] = file.name
            self.by_symbol |= {f"{full_name}.{method.name}": file.name for method in service.method}
        self._add_extensions(file.extension, file.package, file.name)

    def _add_message(self, message: descriptor_pb2.DescriptorProto, scope: str, file: str) -> None:
        full_name = f"{scope}.{message.name}"
        self.by_symbol[full_name] = file
        for part in (*message.field, *message.oneof_decl, *message.enum_type):
            self.by_symbol[f"{full_name}.{part.name}"] = file
        for nested in message.nested_type:
            self._add_message(nested, full_name, file)
        self._add_extensions(message.extension, full_name, file)
        for field in (*message.field, *message.extension):
            field.json_name = field.json_name or _make_json_name(field.name)

    def _add_extensions(self, fields: Iterable[descriptor_pb2.FieldDescriptorProto], scope: str, file: str) -> None:
        for field in fields:
            self.by_symbol[f"{scope}.{field.name}"] = file
            self.by_extension[field.extendee.lstrip("."), field.number] = file
            field.json_name = field.json_name or _make_json_name(field.name)


def _load_files(services: Iterable[str]) -> list[descriptor_pb2.FileDescriptorProto]:
    """Return the services' files and everything they need, including the details of our errors."""
    found: dict[str, descriptor_pb2.FileDescriptorProto] = {}
    for name in services:
        if name != V1:
            pool = POOL if name.startswith("lf.a2a.") else descriptor_pool.Default()
            _copy_file(pool.FindServiceByName(name).file, found)
    _copy_file(error_details_pb2.DESCRIPTOR, found)
    # The two versions differ only in their package.
    text = text_format.MessageToString(found[reflection_pb2.DESCRIPTOR.name]).replace("v1alpha", "v1")
    stable = text_format.Parse(text, descriptor_pb2.FileDescriptorProto())
    return [*found.values(), stable]


def _copy_file(file: FileDescriptor, found: dict[str, descriptor_pb2.FileDescriptorProto]) -> None:
    if file.name in found:
        return
    file.CopyToProto(copy := descriptor_pb2.FileDescriptorProto())
    found[file.name] = copy
    for needed in file.dependencies:
        _copy_file(needed, found)


def _make_json_name(name: str) -> str:
    first, *words = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in words)


def _make_error(code: grpc.StatusCode) -> Response:
    number, text = code.value
    return Response(error_response=reflection_pb2.ErrorResponse(error_code=number, error_message=text))
