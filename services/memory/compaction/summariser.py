"""The model that writes summaries, asked through the gateway; failures are values."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc

from headrace.errors import HeadraceError, ProviderUnavailable, StreamStalled
from headrace.streams import reading
from headrace.v1 import common_pb2, llm_pb2
from services.memory.compaction.prompt import extract_summary
from services.memory.compaction.summary_check import CUT, describe_fault, find_fault
from services.runtime.rpc.call_ids import forward_metadata
from services.runtime.tokens.count import ESTIMATE_ENCODING, count_text

if TYPE_CHECKING:
    from headrace.v1.llm_pb2_grpc import LlmServiceAsyncStub

SUMMARY_TIMEOUT_S = 30.0
"""Time from a request to the last word of its answer."""

TIMEOUT = "TIMEOUT"
CONTENT_FILTERED = "CONTENT_FILTERED"
SUMMARY_FAILED = "SUMMARY_FAILED"

_MAY_BE_BILLED = frozenset({"", TIMEOUT, StreamStalled.reason, CUT})
"""Ends of a call that a provider may have billed without telling."""


@dataclass(frozen=True, slots=True)
class SummaryCall:
    """A request for a summary."""

    request: llm_pb2.ChatRequest
    input_tokens: int

    def complain(self, fault: str, text: str) -> SummaryCall:
        """Return the same call, with what was wrong with its answer; the messages before the last are the same."""
        request = llm_pb2.ChatRequest()
        request.CopyFrom(self.request)
        request.messages[-1].content.add(text=f"\n\n{describe_fault(fault, text)}")
        return SummaryCall(request, self.input_tokens)


@dataclass(frozen=True, slots=True)
class SummaryAnswer:
    text: str
    """The summary; what is no summary where there is a failure."""
    usage: common_pb2.Usage | None
    """Cost of the call, estimated where the provider did not say; None if none can have been billed."""
    failure: str
    """Why there is no summary, as in the error table or our own words; empty on success."""


async def request_summary(llm: LlmServiceAsyncStub | None, call: SummaryCall, timeout_s: float) -> SummaryAnswer:
    if llm is None:
        return SummaryAnswer("", None, ProviderUnavailable.reason)
    answer: list[str] = []
    usage: common_pb2.Usage | None = None
    finish = failure = ""
    try:
        async with (
            asyncio.timeout(timeout_s),
            reading(llm.StreamChat(call.request, timeout=timeout_s, metadata=forward_metadata())) as deltas,
        ):
            async for delta in deltas:
                match delta.WhichOneof("delta"):
                    case "content":
                        answer.append(delta.content)
                    case "usage":
                        usage = delta.usage
                    case "finish":
                        finish = delta.finish.reason
                    case _:
                        pass
    except HeadraceError as error:
        failure = error.reason
    except TimeoutError:
        failure = TIMEOUT
    except grpc.aio.AioRpcError as error:
        failure = TIMEOUT if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED else SUMMARY_FAILED
    written = "".join(answer)
    if usage is None and failure in _MAY_BE_BILLED:
        output_tokens = await asyncio.to_thread(count_text, written, ESTIMATE_ENCODING)  # which may have to be loaded
        usage = common_pb2.Usage(input_tokens=call.input_tokens, output_tokens=output_tokens, estimated=True)
    text = extract_summary(written)
    fault = CONTENT_FILTERED if finish == "content_filter" else find_fault(text, finish)
    return SummaryAnswer(text, usage, failure or fault)
