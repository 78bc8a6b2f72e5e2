"""Has a model write a summary, in one request or in chunks, through the gateway.

Failures are values: unsummarized messages are reported, not invented.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc

from headrace.errors import HeadraceError, ProviderUnavailable, StreamStalled
from headrace.streams import reading
from headrace.v1 import common_pb2, llm_pb2
from services.memory.compaction.prompt import CUT, FAULTS, extract_summary, find_fault
from services.memory.compaction.receipt import WrittenSummary, measure_cached_ratio
from services.memory.compaction.summary_requests import PartSummary, SummaryCall, format_part
from services.runtime.rpc.call_ids import forward_metadata
from services.runtime.tokens.count import ESTIMATE_ENCODING, count_text
from services.runtime.usage import sum_usages

if TYPE_CHECKING:
    from headrace.v1.llm_pb2_grpc import LlmServiceAsyncStub
    from services.memory.compaction.summary_requests import SummaryRequests
    from services.memory.compaction.transcript import Chunk

SILENCE_S = 90.0
"""Maximum time without a delta. The gateway gives up a silent provider earlier and reports why."""

TIMEOUT = "TIMEOUT"
CONTENT_FILTERED = "CONTENT_FILTERED"
SUMMARY_FAILED = "SUMMARY_FAILED"

_MAY_BE_BILLED = frozenset({"", TIMEOUT, StreamStalled.reason, CUT})
"""Call outcomes that a provider may have billed without reporting usage."""


@dataclass(frozen=True, slots=True)
class SummaryAnswer:
    text: str
    """The summary; on failure, the invalid answer."""
    usage: common_pb2.Usage | None
    """Cost of the call, estimated if not reported; None if it cannot have been billed."""
    failure: str
    """Why there is no summary, as in the error table or one of our own reasons; empty on success."""


async def request_summary(
    llm: LlmServiceAsyncStub | None, call: SummaryCall, timeout_s: float, answer: list[str]
) -> SummaryAnswer:
    """Request a summary; its pieces are added to `answer` as they arrive."""
    if llm is None:
        return SummaryAnswer("", None, ProviderUnavailable.reason)
    now = asyncio.get_running_loop().time
    usage: common_pb2.Usage | None = None
    finish = failure = ""
    try:
        async with (
            asyncio.timeout(timeout_s),
            asyncio.timeout(SILENCE_S) as silence,
            reading(llm.StreamChat(call.request, timeout=timeout_s, metadata=forward_metadata())) as deltas,
        ):
            async for delta in deltas:
                silence.reschedule(now() + SILENCE_S)
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
    if usage is None and failure in _MAY_BE_BILLED:
        usage = await asyncio.to_thread(_estimate_usage, call, answer)
    text = extract_summary("".join(answer))
    fault = CONTENT_FILTERED if finish == "content_filter" else find_fault(text, finish)
    return SummaryAnswer(text, usage, failure or fault)


def _estimate_usage(call: SummaryCall, answer: Sequence[str]) -> common_pb2.Usage:
    """Estimate a call's usage; run it in a thread, because the encoding may have to be loaded."""
    output_tokens = count_text("".join(answer), ESTIMATE_ENCODING)
    return common_pb2.Usage(input_tokens=call.input_tokens, output_tokens=output_tokens, estimated=True)


PARALLEL_MAX = 4
"""Chunks that are summarized concurrently."""

WINDOW_TOO_SMALL = "SUMMARY_WINDOW_TOO_SMALL"
"""The summarizer's window has no room for any of the conversation."""


class SummaryWriter:
    """Writes one summary; owned by one compaction."""

    def __init__(
        self,
        llm: LlmServiceAsyncStub | None,
        requests: SummaryRequests,
        timeout_s: float,
        prepare: Callable[[llm_pb2.ChatRequest], None],
    ) -> None:
        """Limit all calls together to `timeout_s`; `prepare` adds referenced media to a request, in a thread."""
        self._llm = llm
        self._requests = requests
        self._timeout_s = timeout_s
        self._prepare = prepare
        self._spare = 0
        """Calls left for repeating invalid answers."""
        self._calls = 0
        self._usages: list[common_pb2.Usage] = []
        self._told = 0
        self._under_way: dict[int, tuple[SummaryCall, list[str]]] = {}
        """Calls by number, each with its answer so far."""
        self._ends_at = 0.0

    async def write(self) -> AsyncGenerator[common_pb2.Usage | WrittenSummary]:
        """Yield the cost of each call, then the summary."""
        self._ends_at = asyncio.get_running_loop().time() + self._timeout_s
        whole = await asyncio.to_thread(self._build_whole)
        if whole is not None:
            call, groups_seen = whole
            answer = await self._request(call)
            if answer.failure in FAULTS and self._requests.calls_max > 1:
                for usage in self._take_untold():
                    yield usage
                answer = await self._request(call.complain(answer.failure, answer.text))
            for usage in self._take_untold():
                yield usage
            yield self._make_result(answer.text, answer.failure, groups_seen, ())
            return
        chunks = await asyncio.to_thread(self._requests.cut_chunks)
        self._spare = self._requests.calls_max - len(chunks) - self._requests.count_merges(len(chunks))
        seen = [0.0] * len(self._requests.entries)
        parts: list[PartSummary] = []
        failure = "" if chunks else WINDOW_TOO_SMALL
        for start in range(0, len(chunks), PARALLEL_MAX):
            batch = chunks[start : start + PARALLEL_MAX]
            answers = await self._ask_all([self._requests.build_part(chunk) for chunk in batch])
            for usage in self._take_untold():
                yield usage
            parts += self._take_parts(batch, answers, seen)
            if all(answer.failure for answer in answers):
                failure = answers[-1].failure
                break
        while len(parts) > 1:
            merged = await self._merge_parts(parts)
            for usage in self._take_untold():
                yield usage
            if len(merged) == len(parts):
                break
            parts = merged
        text = parts[0].text if len(parts) == 1 else "\n\n".join(map(format_part, parts))
        yield self._make_result(text, "" if parts else failure, self._requests.draft.plan.start, seen)

    def sum_usage(self) -> common_pb2.Usage | None:
        """Sum up the billable usage of all calls, with estimates for calls in progress; None if nothing can have been
        billed."""
        open_calls = [_estimate_usage(call, answer) for call, answer in self._under_way.values()]
        usage = sum_usages([*self._usages, *open_calls])
        if usage is not None:
            usage.model_calls = self._calls
        return usage

    def _make_result(self, text: str, failure: str, groups_seen: int, seen: Sequence[float]) -> WrittenSummary:
        cached_ratio = measure_cached_ratio(self._usages)
        return WrittenSummary(text, failure, groups_seen, seen, self._calls, cached_ratio, self.sum_usage())

    def _build_whole(self) -> tuple[SummaryCall, int] | None:
        whole = self._requests.build_whole()
        if whole is not None:
            self._prepare(whole[0].request)
        return whole

    def _take_parts(
        self, chunks: Sequence[Chunk], answers: Sequence[SummaryAnswer], seen: list[float]
    ) -> list[PartSummary]:
        """Return the valid summaries, and add the entries they cover to `seen`."""
        parts: list[PartSummary] = []
        for chunk, answer in zip(chunks, answers, strict=True):
            if not answer.failure:
                parts.append(PartSummary(*chunk.find_lines(self._requests.entries), answer.text))
                for index, share in chunk.pieces:
                    seen[index] += share
        return parts

    async def _merge_parts(self, parts: Sequence[PartSummary]) -> list[PartSummary]:
        """Merge each group of adjacent summaries into one; a group whose merge fails is kept as is."""
        groups = self._requests.group_parts(parts)
        joined = [group for group in groups if len(group) > 1]
        answers = iter(await self._ask_all([self._requests.build_merge(group) for group in joined]))
        merged: list[PartSummary] = []
        for group in groups:
            answer = next(answers) if len(group) > 1 else None
            if answer is None or answer.failure:
                merged += group
            else:
                merged.append(PartSummary(group[0].first, group[-1].last, answer.text))
        return merged

    async def _ask_all(self, calls: Sequence[SummaryCall]) -> list[SummaryAnswer]:
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(self._ask(call)) for call in calls]
        return [task.result() for task in asked]

    async def _ask(self, call: SummaryCall) -> SummaryAnswer:
        """Request a summary; if the answer is invalid, request it again with a description of the fault."""
        answer = await self._request(call)
        if answer.failure in FAULTS and self._spare > 0:
            self._spare -= 1
            answer = await self._request(call.complain(answer.failure, answer.text))
        return answer

    async def _request(self, call: SummaryCall) -> SummaryAnswer:
        left_s = self._ends_at - asyncio.get_running_loop().time()
        self._calls += 1
        number, text = self._calls, list[str]()
        self._under_way[number] = call, text
        answer = await request_summary(self._llm, call, max(0.0, left_s), text)
        del self._under_way[number]  # not where it was cancelled: then it may be billed
        if answer.usage is not None:
            self._usages.append(answer.usage)
        return answer

    def _take_untold(self) -> list[common_pb2.Usage]:
        usages = self._usages[self._told :]
        self._told += len(usages)
        return usages
