"""The base of the client's calls with one answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.sync.streams import rpc_errors

UNARY_TIMEOUT_S = 30.0
"""Limit for one answer; streams have none, as a run waits for people."""


class UnaryCalls:
    _metadata: Sequence[tuple[str, str]]

    def _send(self, rpc: Any, request: Any, timeout_s: float = UNARY_TIMEOUT_S) -> Any:
        """Return the answer of a stub's method; raises a HeadraceError."""
        with rpc_errors():
            return rpc(request, timeout=timeout_s, metadata=self._metadata)
