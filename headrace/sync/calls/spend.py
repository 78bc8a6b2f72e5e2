"""The client's calls about what is spent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.sync.calls.unary import UnaryCalls
from headrace.v1 import spend_pb2


class SpendCalls(UnaryCalls):
    _spend: Any

    def usage(
        self,
        *,
        group_by: Sequence[str] = (),
        from_day: str = "",
        to_day: str = "",
        scope: str = "own",
        user: str = "",
        agent_key: str = "",
        model: str = "",
        key: str = "",
    ) -> spend_pb2.GetUsageResponse:
        """Return what was spent, by default in the last 30 days by the caller; `group_by` some of day, user, agent,
        model and key, `scope` own or tenant, days such as 2026-11-23 (UTC)."""
        request = spend_pb2.GetUsageRequest(
            from_day=from_day,
            to_day=to_day,
            group_by=group_by,
            scope=scope,
            user=user,
            agent_key=agent_key,
            model=model,
            key=key,
        )
        return self._send(self._spend.GetUsage, request)
