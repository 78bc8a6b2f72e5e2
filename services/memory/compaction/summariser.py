"""The model that writes summaries, asked through the gateway; failures are values."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc

from headrace.errors import HeadraceError, ProviderUnavailable
from headrace.streams import reading
from headrace.v1 import common_pb2
from services.memory.compaction.prompt import extract_summary
from services.runtime.rpc.call_ids import forward_metadata

if TYPE_CHECKING:
    from headrace.v1 import llm_pb2
    from headrace.v1.llm_pb2_grpc import LlmServiceAsyncStub

SUMMARY_TIMEOUT_S = 30.0
"""Time from the request to the last word, while a run waits."""


@dataclass(frozen=True, slots=True)
class SummaryAnswer:
    text: str
    """The summary; empty if there is none."""
    usage: common_pb2.Usage | None
    """Usage of the request; None if the provider did not say, or was not reached."""
    failure: str
    """Why there is no summary, as in the error table or our own words; empty on success."""


async def request_summary(
    llm: LlmServiceAsyncStub | None, request: llm_pb2.ChatRequest, timeout_s: float
) -> SummaryAnswer:
    if llm is None:
        return SummaryAnswer("", None, ProviderUnavailable.reason)
    answer: list[str] = []
    usage: common_pb2.Usage | None = None
    failure = ""
    try:
        async with (
            asyncio.timeout(timeout_s),
            reading(llm.StreamChat(request, timeout=timeout_s, metadata=forward_metadata())) as deltas,
        ):
            async for delta in deltas:
                match delta.WhichOneof("delta"):
                    case "content":
                        answer.append(delta.content)
                    case "usage":
                        usage = delta.usage
                    case "finish" if delta.finish.reason == "content_filter":
                        failure = "CONTENT_FILTERED"
                    case _:
                        pass
    except HeadraceError as error:
        failure = error.reason
    except TimeoutError:
        failure = "TIMEOUT"
    except grpc.aio.AioRpcError as error:
        failure = "TIMEOUT" if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED else "SUMMARY_FAILED"
    text = "" if failure else extract_summary("".join(answer))
    return SummaryAnswer(text, usage, failure or ("" if text else "EMPTY_SUMMARY"))
