"""A page of a chat's runs, and the cost of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2, common_pb2
from services.runtime.usage import add_cost

PAGE_SIZE, PAGE_SIZE_MAX = 50, 200


def page(runs: Sequence[agent_pb2.Run], request: agent_pb2.ListRunsRequest) -> agent_pb2.ListRunsResponse:
    """Return the page after the run that the token names.

    Raises:
        InvalidRequest: The size or the token is invalid.
    """
    if not 0 <= request.page_size <= PAGE_SIZE_MAX:
        raise InvalidRequest.of("pageSize", f"must be 1 to {PAGE_SIZE_MAX}, or 0")
    run_ids = [run.run_id for run in runs]
    if request.page_token and request.page_token not in run_ids:
        raise InvalidRequest.of("pageToken", "must be the nextPageToken of an answer")
    first = run_ids.index(request.page_token) + 1 if request.page_token else 0
    end = first + (request.page_size or PAGE_SIZE)
    return agent_pb2.ListRunsResponse(
        runs=runs[first:end],
        next_page_token=runs[end - 1].run_id if end < len(runs) else "",
        runs_total=len(runs),
        usage_total=total(run.usage for run in runs),
    )


def total(usages: Iterable[common_pb2.Usage]) -> common_pb2.Usage:
    found = common_pb2.Usage()
    for usage in usages:
        add_cost(found, usage)
        found.model_calls += usage.model_calls
        found.tool_calls += usage.tool_calls
    return found
