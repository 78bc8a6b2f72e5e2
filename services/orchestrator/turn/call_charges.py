"""Charges model calls whose usage did not come: cancelled, broken off or stalled ones."""

from __future__ import annotations

from headrace.errors import BudgetExceeded, HeadraceError, StreamStalled
from headrace.v1 import common_pb2
from services.orchestrator.peers.call_needs import CallNeeds
from services.runtime.rpc.peer_calls import was_broken_connection


def estimate_untold(
    needs: CallNeeds, error: BaseException, *, was_asked: bool, output_bytes: int
) -> common_pb2.Usage | None:
    """Estimate a call that ended with `error`; None if no provider can have billed it.

    `was_asked` says whether the gateway has turned to a provider.
    """
    may_be_billed = isinstance(error, StreamStalled | BudgetExceeded) or bool(output_bytes)
    if isinstance(error, HeadraceError) and not may_be_billed and not was_broken_connection(error):
        return None  # the provider, or the gateway before it, refused
    return needs.estimate_usage(output_bytes) if was_asked else None
