"""grpcio with its default options: reads streams of one connection to their ends, and prints one line per stream.

`python -m trials.grpc_load.grpcio_client ADDRESS METHOD REQUEST STREAMS`
"""

import asyncio
import json
import sys
import time
from typing import Any

import grpc
from google.protobuf import json_format

from headrace.v1 import llm_pb2


async def read_stream(channel: grpc.aio.Channel, method: str, request: llm_pb2.ChatRequest) -> None:
    begun_s, messages = time.monotonic(), 0
    call: Any = channel.unary_stream(
        method,
        request_serializer=llm_pb2.ChatRequest.SerializeToString,
        response_deserializer=llm_pb2.LlmDelta.FromString,
    )(request)
    try:
        async for _ in call:
            messages += 1
    except grpc.aio.AioRpcError:
        pass  # its status says so
    code, details = await call.code(), await call.details()
    seconds = time.monotonic() - begun_s
    print(json.dumps({"messages": messages, "code": code.value[0], "details": details, "seconds": seconds}), flush=True)


async def main(address: str, method: str, request: str, streams: int) -> None:
    message = json_format.Parse(request, llm_pb2.ChatRequest())
    async with grpc.aio.insecure_channel(address) as channel, asyncio.TaskGroup() as group:
        for _ in range(streams):
            group.create_task(read_stream(channel, method, message))


if __name__ == "__main__":
    address, method, request, streams = sys.argv[1:]
    asyncio.run(main(address, method, request, int(streams)))
