"""What runs without an end have spent, as their logs have it: of parked ones nobody else knows."""

from __future__ import annotations

from headrace.v1 import agent_pb2, common_pb2, memory_pb2
from services.orchestrator.calls.results import is_refusal
from services.orchestrator.money.charges import replace_cost
from services.orchestrator.peers import stored_runs
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.replay.replay import Recording
from services.runtime.usage import add_cost

LIVE = ("running", "waiting")
"""States of runs without an end, as their logs have them."""


async def add_usage(peers: Peers, run: agent_pb2.Run) -> agent_pb2.Run:
    """Set what the run has spent, where it has no end that says so."""
    if run.state in LIVE:
        request = memory_pb2.GetChatRequest(run_id=run.run_id, include_lines=True)
        run.usage.CopyFrom(count_usage(Recording((await stored_runs.get_chat(peers, request)).lines)))
    return run


def count_usage(recording: Recording) -> common_pb2.Usage:
    """Sum up what the log knows: its answers, and the calls whose results it has."""
    usage = common_pb2.Usage()
    for answer in recording.answers():
        usage.model_calls += 1
        add_cost(usage, answer.usage)
    if recording.charges:  # an earlier version's log has none
        replace_cost(usage, recording.charges)
    results = (message.message for message in recording.messages() if message.message.role == "tool")
    texts = ("".join(part.text for part in result.content) for result in results)
    usage.tool_calls = sum(not is_refusal(text) for text in texts)
    return usage
