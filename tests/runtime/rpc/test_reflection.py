"""Reflection as generic clients use it: both versions, over both transports."""

from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_reflection.v1alpha import reflection_pb2

from services.runtime.rpc.channels import open_channel
from tests.support.scripted_llm import NAME, serving_script

Request = reflection_pb2.ServerReflectionRequest
VERSIONS = pytest.mark.parametrize("version", ["v1", "v1alpha"])


async def ask(version: str, *requests: Request) -> list[reflection_pb2.ServerReflectionResponse]:
    """Ask a running server over one stream."""
    async with serving_script() as suite, open_channel(suite.running.addresses[0]) as channel:
        method: Any = channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            Request.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )
        return [reply async for reply in method(iter(requests))]


def read_files(reply: reflection_pb2.ServerReflectionResponse) -> dict[str, descriptor_pb2.FileDescriptorProto]:
    files = map(descriptor_pb2.FileDescriptorProto.FromString, reply.file_descriptor_response.file_descriptor_proto)
    return {file.name: file for file in files}


@VERSIONS
async def test_reflection_lists_the_services_and_itself(version: str) -> None:
    (reply,) = await ask(version, Request(list_services="*", host="here"))
    assert [service.name for service in reply.list_services_response.service] == [
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
        NAME,
    ]
    assert (reply.valid_host, reply.original_request.list_services) == ("here", "*")


@VERSIONS
@pytest.mark.parametrize(
    ("symbol", "file"),
    [
        (NAME, "headrace/v1/llm.proto"),
        (f"{NAME}.StreamChat", "headrace/v1/llm.proto"),
        ("headrace.v1.ChatRequest", "headrace/v1/llm.proto"),
        ("headrace.v1.ChatRequest.provider_key", "headrace/v1/llm.proto"),
        ("headrace.v1.ContentPart.part", "headrace/v1/llm.proto"),
        (".headrace.v1.FieldRules", "headrace/v1/common.proto"),
        ("grpc.reflection.v1.ServerReflection", "grpc_reflection/v1/reflection.proto"),
        ("google.rpc.ErrorInfo", "google/rpc/error_details.proto"),
    ],
)
async def test_the_file_of_a_symbol_comes_with_its_dependencies(version: str, symbol: str, file: str) -> None:
    (reply,) = await ask(version, Request(file_containing_symbol=symbol))
    files = read_files(reply)
    assert next(iter(files)) == file
    pool: Any = descriptor_pool.DescriptorPool()
    for needed in reversed(files.values()):
        pool.Add(needed) if hasattr(pool, "Add") else pool.AddSerializedFile(needed.SerializeToString())
    assert pool.FindFileByName(file)


async def test_fields_have_their_json_names_and_files_their_options() -> None:
    (reply,) = await ask("v1", Request(file_by_filename="headrace/v1/llm.proto"))
    file = read_files(reply)["headrace/v1/llm.proto"]
    names = {field.name: field.json_name for message in file.message_type for field in message.field}
    assert (names["provider_key"], names["top_p"], names["input_usd_per_mtok"]) == (
        "providerKey",
        "topP",
        "inputUsdPerMtok",
    )
    assert (file.options.go_package, file.options.java_multiple_files) == ("headrace/v1;headracev1", True)


async def test_extensions_are_found_by_number() -> None:
    extension = reflection_pb2.ExtensionRequest(containing_type="google.protobuf.FieldOptions", extension_number=50001)
    options = "google.protobuf.FieldOptions"
    found, numbers = await ask(
        "v1", Request(file_containing_extension=extension), Request(all_extension_numbers_of_type=options)
    )
    assert "headrace/v1/common.proto" in read_files(found)
    assert list(numbers.all_extension_numbers_response.extension_number) == [50001]


async def test_a_missing_symbol_is_not_found_and_the_stream_continues() -> None:
    replies = await ask(
        "v1",
        Request(file_containing_symbol="headrace.v1.Nothing"),
        Request(file_by_filename="nothing.proto"),
        Request(all_extension_numbers_of_type="headrace.v1.Nothing"),
        Request(),
        Request(list_services=""),
    )
    codes = [reply.error_response.error_code for reply in replies]
    missing, invalid = grpc.StatusCode.NOT_FOUND.value[0], grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert codes == [missing, missing, missing, invalid, 0]
