"""Limits of a request: the model's window less the room for its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.runtime.tokens import model_table

if TYPE_CHECKING:
    from headrace.v1 import memory_pb2


def get_window_tokens(limits: memory_pb2.ModelLimits) -> int:
    """Return the tokens of request and answer together; for an unknown model the smallest window in use."""
    return limits.context_window_tokens or model_table.facts(limits.model).context_window


def get_answer_tokens(limits: memory_pb2.ModelLimits) -> int:
    """Return the tokens kept free for the answer, at most half of the window: some provider files give the whole window
    as the greatest answer."""
    known = model_table.known_facts(limits.model) or model_table.UNKNOWN
    return min(limits.output_tokens or known.max_output, get_window_tokens(limits) // 2)


def get_request_tokens_max(limits: memory_pb2.ModelLimits) -> int:
    return get_window_tokens(limits) - get_answer_tokens(limits)
