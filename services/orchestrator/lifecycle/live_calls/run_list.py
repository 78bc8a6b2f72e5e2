"""Pages of a chat's runs, and their usage; the usage of a parked run without an end is only in its log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.errors import InvalidRequest
from headrace.run_states import State
from headrace.v1 import agent_pb2, common_pb2, memory_pb2
from services.orchestrator.calls.results import is_refusal
from services.orchestrator.money.charges import replace_cost
from services.orchestrator.peers import stored_runs
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.restore.restored_run import RestoredRun
from services.runtime.usage import add_cost

PAGE_SIZE, PAGE_SIZE_MAX = 50, 200

UNENDED = (State.RUNNING, State.WAITING)
"""States of runs that have no end in their logs."""


def page(runs: Sequence[agent_pb2.Run], request: agent_pb2.ListRunsRequest) -> agent_pb2.ListRunsResponse:
    """Return the page after the run in the token.

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


async def add_usage(peers: Peers, run: agent_pb2.Run) -> agent_pb2.Run:
    """Set the run's usage, if it has no end that states it."""
    if run.state in UNENDED:
        request = memory_pb2.GetChatRequest(run_id=run.run_id, include_lines=True)
        run.usage.CopyFrom(count_usage(RestoredRun((await stored_runs.get_chat(peers, request)).lines)))
    return run


def count_usage(restored: RestoredRun) -> common_pb2.Usage:
    """Sum up the usage in the log: its answers, and the calls with results."""
    usage = common_pb2.Usage()
    for answer in restored.answers():
        usage.model_calls += 1
        add_cost(usage, answer.usage)
    if restored.charges:  # an earlier version's log has none
        replace_cost(usage, restored.charges)
    results = (message.message for message in restored.messages() if message.message.role == "tool")
    texts = ("".join(part.text for part in result.content) for result in results)
    usage.tool_calls = sum(not is_refusal(text) for text in texts)
    return usage
